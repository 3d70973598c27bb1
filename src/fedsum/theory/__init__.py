"""Learning rates, bounds and delay lemmas of the FedSUM paper, and FedSUM's stability limit.

Symbols: L smoothness, sigma gradient noise (E||g - grad f_i||^2 <= sigma^2), N clients, S active clients per round,
delta the smallest probability that a client is active, K local steps, T rounds, eta_l and eta_g the local and global
learning rates, Delta_f = f(x0) - f*, F_0 = (1/N) sum_i ||grad f_i(x0)||^2. tau_t is the longest any client has been
away in round t, in rounds; tau_max and tau_avg are its maximum and its mean over the rounds.

Lemmas, theorems and equations are cited by their labels in the paper's LaTeX source, such as lem:descent.

The main text has 1 + tau_avg where the appendix, which has the proof, has max{1, tau_avg}; this package follows the
appendix. With full participation tau_max = 0, and max{1, tau_max} is used in its place: with the printed formula,
eta_g would be infinite and the bound 0.
"""

from .delay_lemmas import case_bound, delay_bound
from .descent import best_rates, bound_at, largest_eta_l
from .inputs import FAMILY
from .stability import recorded_limit, stability_limit
from .theorem import Rates, bound, fedsum_b_rates, learning_rates

__all__ = [
    "FAMILY",
    "Rates",
    "best_rates",
    "bound",
    "bound_at",
    "case_bound",
    "delay_bound",
    "fedsum_b_rates",
    "largest_eta_l",
    "learning_rates",
    "recorded_limit",
    "stability_limit",
]
