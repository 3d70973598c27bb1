"""Literal transcriptions in NumPy of the algorithms that the FedSUM paper does not compare with.

As in tests/literal.py: line by line as the source prints it, without code of the package. Models are subtracted,
memories are summed again in each round, and counters of absent clients are updated one by one.
"""

import numpy as np
from literal import fedavg, local_sgd


def fedopt(P, beta1, second, tau):  # Reddi et al., Algorithm 2
    x, m, v = P.x0.copy(), P.zeros(), P.zeros() + tau**2
    for t, S in enumerate(P.sets):
        if not len(S):
            continue
        delta = np.mean([local_sgd(P, i, x, t) - x for i in S], axis=0)
        m = beta1 * m + (1 - beta1) * delta
        v = second(v, delta)
        x = x + P.eta_g * m / (np.sqrt(v) + tau)
    return x


def fedadagrad(P):
    return fedopt(P, 0.0, lambda v, delta: v + delta**2, 1e-3)


def fedyogi(P):
    return fedopt(P, 0.9, lambda v, delta: v - (1 - 0.99) * delta**2 * np.sign(v - delta**2), 1e-2)


def fedadam(P):
    return fedopt(P, 0.8, lambda v, delta: 0.95 * v + (1 - 0.95) * delta**2, 1e-2)


def fedavgm(P, beta=0.7):  # Hsu et al.
    x, v = P.x0.copy(), P.zeros()
    for t, S in enumerate(P.sets):
        if len(S):
            v = beta * v + np.mean([x - local_sgd(P, i, x, t) for i in S], axis=0)
            x = x - P.eta_g * v
    return x


def amplified_fedavg(P, period=3):  # Wang & Ji, Algorithm 1
    x, u = P.x0.copy(), P.zeros()
    window_start = x.copy()
    for t, S in enumerate(P.sets):
        if len(S):
            delta = np.mean([local_sgd(P, i, x, t) - x for i in S], axis=0)
            u = u + delta
            x = x + delta
        if (t + 1) % period == 0:
            x = window_start + P.eta_g * u
            window_start, u = x.copy(), P.zeros()
    return x


def amplified_scaffold(P, period=3):  # Crawshaw & Liu: sums and counts of a window, replaced for all clients at its end
    x = P.x0.copy()
    window_start = x.copy()
    c_i, sums, counts = [P.zeros() for _ in range(P.N)], [P.zeros() for _ in range(P.N)], [0] * P.N
    for t, S in enumerate(P.sets):
        c, models = np.mean(c_i, axis=0), []
        for i in S:
            x_i = x.copy()
            for k in range(P.K):
                g = P.g(i, x_i, t, k)
                sums[i], counts[i] = sums[i] + g, counts[i] + 1
                x_i = x_i - P.eta_l(t) * (g - c_i[i] + c)
            models.append(x_i)
        if models:
            x = np.mean(models, axis=0)
        if (t + 1) % period == 0:
            x = window_start + P.eta_g * (x - window_start)
            window_start = x.copy()
            for i in range(P.N):
                if counts[i]:
                    c_i[i], sums[i], counts[i] = sums[i] / counts[i], P.zeros(), 0
    return x


def fedcm(P, alpha=0.3):  # Xu et al., Algorithm 2
    x, delta = P.x0.copy(), P.zeros()
    for t, S in enumerate(P.sets):
        if not len(S):
            continue
        eta, models = P.eta_l(t), []
        for i in S:
            x_i = x.copy()
            for k in range(P.K):
                x_i = x_i - eta * (alpha * P.g(i, x_i, t, k) + (1 - alpha) * delta)
            models.append(x_i)
        delta = np.mean([(x - x_i) / (eta * P.K) for x_i in models], axis=0)
        x = x - P.eta_g * eta * P.K * delta
    return x


def scaffold_m(P, beta=0.3):  # Cheng et al., SCAFFOLD-M
    x, v = P.x0.copy(), P.zeros()
    c_i = [P.zeros() for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        if not len(S):
            continue
        eta, c, models, means = P.eta_l(t), np.mean(c_i, axis=0), [], {}
        for i in S:
            x_i, gradients = x.copy(), []
            for k in range(P.K):
                gradients.append(P.g(i, x_i, t, k))
                x_i = x_i - eta * (beta * (gradients[-1] - c_i[i] + c) + (1 - beta) * v)
            models.append(x_i)
            means[i] = np.mean(gradients, axis=0)
        v = np.mean([x - x_i for x_i in models], axis=0) / (eta * P.K)
        x = x - P.eta_g * eta * P.K * v
        for i in S:
            c_i[i] = means[i]
    return x


def fedstale(P, beta=0.4, cutoff=4):  # Rodio & Neglia, with FedAU's estimate of 1/p_i
    x = P.x0.copy()
    h = [P.zeros() for _ in range(P.N)]
    gap, recorded = [0] * P.N, [[] for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        eta = P.eta_l(t)
        new = {i: (x - local_sgd(P, i, x, t)) / (eta * P.K) for i in S}
        direction = beta * sum(h) / P.N
        for i in range(P.N):
            if i in S:
                w = np.mean(recorded[i]) if recorded[i] else 1.0
                direction = direction + w * (new[i] - beta * h[i]) / P.N
                recorded[i].append(gap[i] + 1)
                gap[i] = 0
            else:
                gap[i] += 1
                if gap[i] == cutoff:
                    recorded[i].append(cutoff)
                    gap[i] = 0
        x = x - P.eta_g * eta * P.K * direction
        for i in S:
            h[i] = new[i]
    return x


def fedexp(P, epsilon=1e-3):  # Jhunjhunwala et al., Algorithm 1
    x = P.x0.copy()
    for t, S in enumerate(P.sets):
        if not len(S):
            continue
        deltas = [x - local_sgd(P, i, x, t) for i in S]
        mean = np.mean(deltas, axis=0)
        squares = sum(delta @ delta for delta in deltas)
        x = x - max(1, squares / (2 * len(S) * (mean @ mean + epsilon))) * mean
    return x


def known_fedavg(P, p=0.4):
    x = P.x0.copy()
    p = np.broadcast_to(p, P.N)
    for t, S in enumerate(P.sets):
        moves = [(local_sgd(P, i, x, t) - x) / p[i] for i in S]
        x = x + P.eta_g * sum(moves, P.zeros()) / P.N
    return x


def fedsum_adam(P, lr=0.05, beta1=0.9, beta2=0.99, tau=1e-3):  # FedSUM proposes x_new, Adam steps along x - x_new
    x, y, m, v = P.x0.copy(), P.zeros(), P.zeros(), P.zeros() + tau**2
    h = [P.zeros() for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        eta, deltas = P.eta_l(t), []
        for i in S:
            y_i, x_i = y - h[i], x.copy()
            for k in range(P.K):
                x_i = x_i - eta / P.N * (P.g(i, x_i, t, k) + y_i)
            G = P.N * (x - x_i) / (eta * P.K) - y_i
            deltas.append(G - h[i])
            h[i] = G
        y = y + sum(deltas, P.zeros())
        x_new = x - P.eta_g * eta * P.K / P.N * y
        if np.array_equal(x_new, x):
            continue  # before the first client was active
        u = x - x_new
        m = beta1 * m + (1 - beta1) * u
        v = beta2 * v + (1 - beta2) * u**2
        x = x - lr * m / (np.sqrt(v) + tau)
    return x


def focus(P):  # Ying et al., Algorithm 1, with our rates: their x -= lr y is eta_g = N / K
    x, h = P.x0.copy(), [P.zeros() for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        eta = P.eta_l(t)
        for i in S:
            x_i, y_i, previous = x.copy(), P.zeros(), h[i]
            for k in range(P.K):
                g = P.g(i, x_i, t, k)
                y_i, previous = y_i + g - previous, g
                x_i = x_i - eta * y_i
            h[i] = previous
        x = x - P.eta_g * eta * P.K / P.N * sum(h)
    return x


def fedprox(P, mu=0.7):  # Li et al., Algorithm 2, each client with K gradient steps on its local loss
    x = P.x0.copy()
    for t, S in enumerate(P.sets):
        models = []
        for i in S:
            x_i = x.copy()
            for k in range(P.K):
                x_i = x_i - P.eta_l(t) * (P.g(i, x_i, t, k) + mu * (x_i - x))
            models.append(x_i)
        if models:
            x = x + P.eta_g * (np.mean(models, axis=0) - x)
    return x


def feddyn(P, alpha=0.6):  # Acar et al., Algorithm 1
    x, h = P.x0.copy(), P.zeros()
    lambdas = [P.zeros() for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        if not len(S):
            continue
        models = []
        for i in S:
            x_i = x.copy()
            for k in range(P.K):
                x_i = x_i - P.eta_l(t) * (P.g(i, x_i, t, k) - lambdas[i] + alpha * (x_i - x))
            lambdas[i] = lambdas[i] - alpha * (x_i - x)
            models.append(x_i)
        h = h - alpha / P.N * sum(x_i - x for x_i in models)
        x = np.mean(models, axis=0) - h / alpha
    return x


def top_half(v, *_):
    """The larger half of the coordinates by absolute value."""
    sent = np.zeros_like(v)
    largest = np.argsort(-np.abs(v))[: (len(v) + 1) // 2]
    sent[largest] = v[largest]
    return sent


def splitmix(key, t, d):
    """Steele et al., 2014: the generator's output, with the round's output as the seed of a stream of d numbers."""

    def output(state):
        z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    seed = output((key + (t + 1) * 0x9E3779B97F4A7C15) % 2**64)
    return np.array([(output((seed + n * 0x9E3779B97F4A7C15) % 2**64) >> 11) / 2**53 for n in range(1, d + 1)])


def random_half(v, key, t):
    sent = np.zeros_like(v)
    drawn = np.argsort(-splitmix(key, t, len(v)))[: (len(v) + 1) // 2]
    sent[drawn] = v[drawn]
    return sent


def eight_bits(v, key, t):
    scale = np.abs(v).max() / 127
    return np.clip(np.floor(v / scale + splitmix(key, t, len(v))), -127, 127) * scale


def compressed_scaffold(P, C, alpha=1.0, beta=1.0):  # Huang et al.: SCALLION (alpha) and SCAFCOM (beta)
    x = P.x0.copy()
    c_i, v_i = ([P.zeros() for _ in range(P.N)] for _ in range(2))
    for t, S in enumerate(P.sets):
        if not len(S):
            continue
        c, deltas = np.mean(c_i, axis=0), {}
        for i in S:
            x_i, gradients = x.copy(), []
            for k in range(P.K):
                gradients.append(P.g(i, x_i, t, k))
                x_i = x_i - P.eta_l(t) * (gradients[-1] - c_i[i] + c)
            v_i[i] = (1 - beta) * v_i[i] + beta * np.mean(gradients, axis=0)
            deltas[i] = C(alpha * (v_i[i] - c_i[i]), P.key(i), t)
        for i in S:
            c_i[i] = c_i[i] + deltas[i]
        x = x - P.eta_g * P.eta_l(t) * P.K * (np.mean(list(deltas.values()), axis=0) + c)
    return x


def compressed_fedsum(P, C):  # FedSUM, whose clients and server both add what was sent
    x = P.x0.copy()
    h = [P.zeros() for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        eta, y, deltas = P.eta_l(t), sum(h), {}
        for i in S:
            x_i, y_i = x.copy(), y - h[i]
            for k in range(P.K):
                x_i = x_i - eta / P.N * (P.g(i, x_i, t, k) + y_i)
            deltas[i] = C(P.N * (x - x_i) / (eta * P.K) - y_i - h[i], P.key(i), t)
        for i in S:
            h[i] = h[i] + deltas[i]
        x = x - P.eta_g * eta * P.K / P.N * sum(h)
    return x


# The option `divide_by_seen`. M: the clients seen so far, counted by keeping them in a set.


def fedsum_b_seen(P):
    x, y, seen = P.x0.copy(), P.zeros(), set()
    h = [P.zeros() for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        for i in S:
            G = np.mean([P.g(i, x, t, k) for k in range(P.K)], axis=0)
            y, h[i] = y + G - h[i], G
        seen |= set(S)
        x = x - P.eta_g * P.eta_l(t) * P.K * y / max(1, len(seen))
    return x


def fedsum_seen(P):
    x, seen = P.x0.copy(), set()
    h = [P.zeros() for _ in range(P.N)]
    for t, S in enumerate(P.sets):
        M, y = max(1, len(seen)), np.sum(h, axis=0)
        for i in S:
            others = y - h[i]
            x_i = x.copy()
            for k in range(P.K):
                x_i = x_i - P.eta_l(t) / M * (P.g(i, x_i, t, k) + others)
            h[i] = M * (x - x_i) / (P.eta_l(t) * P.K) - others
        seen |= set(S)
        x = x - P.eta_g * P.eta_l(t) * P.K / max(1, len(seen)) * np.sum(h, axis=0)
    return x


def fedsum_cr_seen(P):  # the average of y/M over the rounds since a_i, from a list of all rounds
    x, seen, means = P.x0.copy(), set(), []
    h, a = [P.zeros() for _ in range(P.N)], [-1] * P.N
    for t, S in enumerate(P.sets):
        M = max(1, len(seen))
        for i in S:
            # Round -1 has round 0's rate, and x does not move in it.
            past = [(P.eta_l(max(p, 0)), means[p] if p >= 0 else P.zeros()) for p in range(a[i], t)]
            others = M * sum(rate * mean for rate, mean in past) / sum(rate for rate, _ in past) - h[i]
            x_i = x.copy()
            for k in range(P.K):
                x_i = x_i - P.eta_l(t) / M * (P.g(i, x_i, t, k) + others)
            h[i], a[i] = M * (x - x_i) / (P.eta_l(t) * P.K) - others, t
        seen |= set(S)
        means.append(np.sum(h, axis=0) / max(1, len(seen)))
        x = x - P.eta_g * P.eta_l(t) * P.K * means[-1]
    return x


def mifa_seen(P):
    x, memory = P.x0.copy(), {}
    for t, S in enumerate(P.sets):
        for i in S:
            memory[i] = (x - local_sgd(P, i, x, t)) / (P.eta_l(t) * P.K)
        if memory:
            x = x - P.eta_g * P.eta_l(t) * P.K * np.mean(list(memory.values()), axis=0)
    return x


def fedbuff(P):  # without staleness: tests/literal_async.py has the event queue
    return fedavg(P)


def fedasync(P, alpha=0.6):  # without staleness
    x = P.x0.copy()
    for t, S in enumerate(P.sets):
        if len(S):
            models = [local_sgd(P, i, x, t) for i in S]
            x = np.mean([(1 - alpha) * x + alpha * x_i for x_i in models], axis=0)
    return x
