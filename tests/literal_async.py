"""Literal transcription of asynchronous training in NumPy: an event queue, and what each client was sent.

As in tests/literal.py: without code of the package but the keys of random numbers. Every client keeps its own copy of
what it was sent. It trains when its update arrives, with the batches and the learning rate of that server step.
"""

import heapq

import numpy as np


def asynchronous(P, rule, *, steps, buffer, seconds, sent):
    """Runs `rule`, an object of a class below.

    Args:
      P: the problem, tests/literal.py.
      steps: server steps.
      buffer: m.
      seconds: `seconds(t, i)`, how long the work takes that client i is sent before step t.
      sent: `sent(t)`, the clients that are sent work before step t > 0 if fewer than all are at work; None: those that
        arrived. `sent(0)` are the first clients.

    Returns the final model, the arrivals of each step, and the time of each step.
    """
    queue, mail, arrivals, times, now = [], {}, [], [], 0.0
    for t in range(steps):
        for i in range(P.N) if sent is None and t == 0 else sent(t) if sent else arrivals[-1]:
            assert i not in mail
            mail[i] = (t, rule.sent())
            heapq.heappush(queue, (now + seconds(t, i), t, i))
        arrived = []
        for _ in range(buffer):
            now, _, i = heapq.heappop(queue)
            arrived.append(i)
        arrived.sort()
        updates = []
        for i in arrived:
            began, message = mail.pop(i)
            updates.append(rule.work(i, message, t, t - began))
        rule.step(updates, t)
        arrivals.append(arrived)
        times.append(now)
    return rule.x, arrivals, times


class Rule:
    """FedAvg; the others override what differs."""

    vectors, scalars = (1, 1), (0, 0)
    """down and up"""

    def __init__(self, P):
        self.P, self.x = P, P.x0.copy()

    def sent(self):
        return self.x.copy()

    def local_sgd(self, i, start, t, eta=None, along=0.0):
        eta, x = self.P.eta_l(t) if eta is None else eta, start.copy()
        for k in range(self.P.K):
            x = x - eta * (self.P.g(i, x, t, k) + along)
        return x

    def work(self, i, x, t, staleness):
        return x - self.local_sgd(i, x, t)

    def step(self, updates, t):
        self.x = self.x - self.P.eta_g * np.mean(updates, axis=0)


class FedBuff(Rule):  # Nguyen et al., Algorithm 1, with the weights of FLSim's "polynomial" staleness, exponent 1/2
    scalars = (1, 0)

    def work(self, i, x, t, staleness):
        return (x - self.local_sgd(i, x, t)) / np.sqrt(1 + staleness)


class FedAsync(Rule):  # Xie et al., Algorithm 1, without the proximal term
    scalars = (1, 1)

    def work(self, i, x, t, staleness):
        return 0.6 * (1 + staleness) ** -0.5, self.local_sgd(i, x, t)

    def step(self, updates, t):
        before = self.x
        for a, x_i in updates:
            self.x = self.x + ((1 - a) * before + a * x_i - before) / len(updates)


class MIFA(Rule):
    def __init__(self, P):
        super().__init__(P)
        self.G = [P.zeros() for _ in range(P.N)]

    def work(self, i, x, t, staleness):
        self.G[i] = (x - self.local_sgd(i, x, t)) / (self.P.eta_l(t) * self.P.K)

    def step(self, updates, t):
        self.x = self.x - self.P.eta_g * self.P.eta_l(t) * self.P.K * np.mean(self.G, axis=0)


class SCAFFOLD(Rule):  # option II: two vectors up in the paper, one in fedsum
    vectors = (2, 1)

    def __init__(self, P):
        super().__init__(P)
        self.c, self.c_i = P.zeros(), [P.zeros() for _ in range(P.N)]

    def sent(self):
        return self.x.copy(), self.c.copy()

    def work(self, i, message, t, staleness):
        """c_i+ = mean of the gradients; the server's c at arrival takes the place of the c that was sent."""
        x, c = message
        y = self.local_sgd(i, x, t, along=c - self.c_i[i])
        new = self.c_i[i] - c + (x - y) / (self.P.eta_l(t) * self.P.K)
        change, self.c_i[i] = new - self.c_i[i], new
        return change

    def step(self, updates, t):
        P = self.P
        self.x = self.x - P.eta_g * P.eta_l(t) * P.K * (np.mean(updates, axis=0) + self.c)
        self.c = np.mean(self.c_i, axis=0)


class FedSUM(Rule):
    vectors = (2, 1)

    def __init__(self, P):
        super().__init__(P)
        self.y, self.h = P.zeros(), [P.zeros() for _ in range(P.N)]

    def sent(self):
        return self.x.copy(), self.y.copy()

    def work(self, i, message, t, staleness):
        x, y = message
        y_i = y - self.h[i]
        eta = self.P.eta_l(t) / self.P.N
        self.h[i] = (x - self.local_sgd(i, x, t, eta, along=y_i)) / (eta * self.P.K) - y_i

    def step(self, updates, t):
        self.y = np.sum(self.h, axis=0)
        self.x = self.x - self.P.eta_g * self.P.eta_l(t) * self.P.K / self.P.N * self.y


class FedSUMB(FedSUM):
    vectors = (1, 1)

    def work(self, i, message, t, staleness):
        self.h[i] = np.mean([self.P.g(i, message[0], t, k) for k in range(self.P.K)], axis=0)


class FedSUMCR(FedSUM):
    """The average of y between the two models that a client was sent, from the list of all y."""

    vectors, scalars = (1, 1), (1, 0)

    def __init__(self, P):
        super().__init__(P)
        self.past = []
        """(factor, y) of every server step"""
        self.seen = [None] * P.N
        """server steps done when the client's previous model was sent; None: it had none"""

    def sent(self):
        return self.x.copy(), len(self.past)

    def work(self, i, message, t, staleness):
        x, done = message
        between = self.past[self.seen[i] or 0 : done]
        weights = [factor for factor, _ in between]
        if self.seen[i] is None:  # a client's first time: with the paper's round -1, in which x does not move
            weights.append(self.P.eta_l(0))
        average = sum((factor * y for factor, y in between), self.P.zeros()) / sum(weights)
        self.seen[i] = done
        super().work(i, (x, average), t, staleness)

    def step(self, updates, t):
        super().step(updates, t)
        self.past.append((self.P.eta_l(t), self.y))


RULES = {cls.__name__: cls for cls in (FedBuff, FedAsync, MIFA, SCAFFOLD, FedSUM, FedSUMB, FedSUMCR)} | {"FedAvg": Rule}
