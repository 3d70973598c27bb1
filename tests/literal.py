"""Literal transcriptions of every algorithm in NumPy, line by line as its paper prints it.

They share no code with the package but the keys of random numbers. Models are subtracted as in the paper, memories are
summed again in each round, and counters of absent clients are updated one by one.
"""

import numpy as np

from fedsum.base.keyed import Purpose, torch_seed


class Problem:
    """A task's data as arrays; `g(i, x, t, k)` is the task's stochastic gradient."""

    def __init__(self, task, sets, K, eta_l, eta_g, seed):
        self.A, self.c = task.curvature.numpy(), task.centers.numpy()
        self.x0 = task.init(seed).numpy().copy()
        self.N, self.K, self.eta_l, self.eta_g, self.sets = task.n, K, eta_l, eta_g, sets
        self._noise = lambda t, i: task.batches(seed, t, i, K, 1).numpy()
        self.key = lambda i: torch_seed(seed, Purpose.COMPRESSION, client=i)

    def g(self, i, x, t, k):
        return self.A[i] @ (x - self.c[i]) + self._noise(t, i)[k]

    def zeros(self):
        return np.zeros_like(self.x0)


def fedsum_b(P):  # Algorithm 1
    x, y = P.x0.copy(), P.zeros()
    h = [P.zeros() for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        eta = P.eta_l(t)
        deltas = []
        for i in S:
            x_i1 = x - eta * sum(P.g(i, x, t, k) for k in range(P.K))
            deltas.append((x - x_i1) / (eta * P.K) - h[i])
            h[i] = (x - x_i1) / (eta * P.K)
        y = y + sum(deltas, P.zeros())
        x = x - P.eta_g * eta * P.K / P.N * y
    return x


def fedsum(P):  # Algorithm 2
    x, y = P.x0.copy(), P.zeros()
    h = [P.zeros() for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        eta = P.eta_l(t)
        deltas = []
        for i in S:
            y_i = -h[i] + y
            x_i = x.copy()
            for k in range(P.K):
                x_i = x_i - eta / P.N * (P.g(i, x_i, t, k) + y_i)
            deltas.append(P.N * (x - x_i) / (eta * P.K) - y_i - h[i])
            h[i] = P.N * (x - x_i) / (eta * P.K) - y_i
        y = y + sum(deltas, P.zeros())
        x = x - P.eta_g * eta * P.K / P.N * y
    return x


def fedsum_cr(P, printed=False):  # Algorithm 3; printed: its line 6 to the letter
    x, y = P.x0.copy(), P.zeros()
    h = [P.zeros() for _ in range(P.N)]
    z = [P.x0.copy() for _ in range(P.N)]
    a = [-1] * P.N
    rate = lambda p: P.eta_l(max(p, 0))  # noqa: E731  # round -1 has round 0's
    for t, S in enumerate(P.sets):
        eta = P.eta_l(t)
        deltas = []
        for i in S:
            if printed:
                y_i = P.N / (P.eta_g * eta * P.K) * (z[i] - x) / (t - a[i]) - h[i]
            else:
                summed = sum(rate(p) for p in range(a[i], t))
                y_i = P.N / (P.eta_g * P.K) * (z[i] - x) / summed - h[i]
            x_i = x.copy()
            for k in range(P.K):
                x_i = x_i - eta / P.N * (P.g(i, x_i, t, k) + y_i)
            deltas.append(P.N * (x - x_i) / (eta * P.K) - y_i - h[i])
            h[i] = P.N * (x - x_i) / (eta * P.K) - y_i
            a[i], z[i] = t, x.copy()
        y = y + sum(deltas, P.zeros())
        x = x - P.eta_g * eta * P.K / P.N * y
    return x


def fedsum_cr_printed(P):
    return fedsum_cr(P, printed=True)


def local_sgd(P, i, start, t):
    x_i = start.copy()
    for k in range(P.K):
        x_i = x_i - P.eta_l(t) * P.g(i, x_i, t, k)
    return x_i


def fedavg(P):
    x = P.x0.copy()
    for t, S in enumerate(P.sets):
        if len(S):
            models = [local_sgd(P, i, x, t) for i in S]
            x = x + P.eta_g * (np.mean(models, axis=0) - x)
    return x


def scaffold(P):  # Karimireddy et al., Algorithm 1 with option II: two vectors up
    x, c = P.x0.copy(), P.zeros()
    c_i = [P.zeros() for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        if not len(S):
            continue
        eta, dy, dc = P.eta_l(t), [], []
        for i in S:
            y = x.copy()
            for k in range(P.K):
                y = y - eta * (P.g(i, y, t, k) - c_i[i] + c)
            c_plus = c_i[i] - c + (x - y) / (P.K * eta)
            dy.append(y - x)
            dc.append(c_plus - c_i[i])
            c_i[i] = c_plus
        x = x + P.eta_g * np.mean(dy, axis=0)
        c = c + len(S) / P.N * np.mean(dc, axis=0)
    return x


def mifa(P):
    x = P.x0.copy()
    G = [P.zeros() for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        for i in S:
            G[i] = (x - local_sgd(P, i, x, t)) / P.eta_l(t)
        x = x - P.eta_g * P.eta_l(t) * np.mean(G, axis=0)
    return x


def fedvarp(P):
    x = P.x0.copy()
    y = [P.zeros() for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        if not len(S):
            continue
        eta = P.eta_l(t)
        new = {i: (x - local_sgd(P, i, x, t)) / (eta * P.K) for i in S}
        v = np.mean(y, axis=0) + np.mean([new[i] - y[i] for i in S], axis=0)
        x = x - P.eta_g * eta * P.K * v
        for i in S:
            y[i] = new[i]
    return x


def mifa_displacements(P):  # as FedAWE's authors have it: the change of the model, at the rate of its own round
    x = P.x0.copy()
    moved = [P.zeros() for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        for i in S:
            moved[i] = local_sgd(P, i, x, t) - x
        x = x + P.eta_g * np.mean(moved, axis=0)
    return x


def fedvarp_displacements(P):
    x = P.x0.copy()
    moved = [P.zeros() for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        if not len(S):
            continue
        new = {i: local_sgd(P, i, x, t) - x for i in S}
        x = x + P.eta_g * (np.mean(moved, axis=0) + np.mean([new[i] - moved[i] for i in S], axis=0))
        for i in S:
            moved[i] = new[i]
    return x


def fedau(P, cutoff=50):
    x = P.x0.copy()
    gap, recorded = [0] * P.N, [[] for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        total = P.zeros()
        for i in range(P.N):
            if i in S:
                w = np.mean(recorded[i]) if recorded[i] else 1.0
                total += w * (local_sgd(P, i, x, t) - x)
                recorded[i].append(gap[i] + 1)
                gap[i] = 0
            else:
                gap[i] += 1
                if gap[i] == cutoff:
                    recorded[i].append(cutoff)
                    gap[i] = 0
        x = x + P.eta_g * total / P.N
    return x


def fedau_cutoff_3(P):
    return fedau(P, cutoff=3)


def fedawe(P, clip=None):
    x = P.x0.copy()
    x_i = [P.x0.copy() for _ in range(P.N)]
    last = [-1] * P.N
    for t, S in enumerate(P.sets):
        if not len(S):
            continue
        stale = np.mean([x_i[i] for i in S], axis=0)
        echoes = [(t - last[i]) * (x_i[i] - local_sgd(P, i, x_i[i], t)) for i in S]
        u = np.mean(echoes, axis=0)
        if clip is not None and np.linalg.norm(u) > clip:
            u = u * clip / np.linalg.norm(u)
        x = stale - P.eta_g * u
        for i in S:
            x_i[i], last[i] = x.copy(), t
    return x


def fedawe_clipped(P):
    return fedawe(P, clip=0.1)
