"""A mistake in public code of SCAFFOLD, to measure its effect on comparisons."""

from dataclasses import dataclass

from ..algorithms import SCAFFOLD, Message, Round, State


@dataclass(frozen=True)
class DividedByM(SCAFFOLD):
    """SCAFFOLD with its control variate divided by m, the number of active clients, instead of N.

        c += (1/m) sum_{S_t} d_i

    c is then N/m times the mean of the clients' c_i, and so is the step along it.
    """

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        if m == 0:
            return server
        x, c, d = server["x"], server["c"], total["d"]
        return {"x": x - now.stride * (d / m + c), "c": c + d / m}
