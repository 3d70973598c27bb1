"""Small problems and schedules that several test files share."""

import numpy as np
import torch

from fedsum import Biased, Cyclic, Explicit, Independent, Markov, Reshuffled, Uniform
from fedsum.tasks import Quadratic

N, D, K = 7, 4, 3


class Shifted(Quadratic):
    """A quadratic that does not start at zero, so that a test fails if the initial model is taken for zero."""

    def init(self, seed):
        return torch.linspace(-1.0, 2.0, self.d).to(self.optimum)


def noisy(n=N, d=D, noise=0.5):
    task = Quadratic.random(n, d, noise=noise, seed=3)
    return Shifted(task.curvature, task.centers, noise)


def third_empty(n, rounds=60):
    draw = np.random.default_rng(5)
    return Explicit(n, [[] if t % 3 == 1 else np.flatnonzero(draw.random(n) < 0.5).tolist() for t in range(rounds)])


def schedules(n=N):
    return {
        "uniform": Uniform(n, 2),
        "independent": Independent(n, 0.4),
        "biased": Biased(n, group=1, floor=0.1),
        "cyclic": Cyclic(n, 2),
        "reshuffled": Reshuffled(n, 3),
        "markov": Markov(n, on=0.6, off=0.8),
        "third_empty": third_empty(n),
    }


def decaying(t):
    """The paper's schedule, eta_0 / sqrt(t/10 + 1)."""
    return 0.05 / np.sqrt(t / 10 + 1)


RATES = {"constant": lambda t: 0.05, "decaying": decaying}
