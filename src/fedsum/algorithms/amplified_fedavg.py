from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from ..base.checks import integer, set_fields
from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class AmplifiedFedAvg(Algorithm):
    """Amplified FedAvg (Wang & Ji, 2022): FedAvg whose progress over a window of P rounds is multiplied by eta_g.

    An active client takes K steps of SGD from the server's model x, with the local learning rate eta_l. It sends G_i,
    the mean of its K gradients. The server's step:

        x -= eta_l K * mean_{S_t} G_i
        after every P rounds: x <- w + eta_g (x - w),  w <- x

    S_t: the active clients of round t. w: x at the start of the window. eta_g, the global learning rate, is the
    amplification; within a window it is not used.

    An empty round (no active clients) takes no step, but may end a window. Messages per active client: one vector down,
    one up. With P = 1 it is FedAvg.

    Args:
      period: P, rounds per window. Choose it so that every client has a turn in a window: for the schedule `Periodic`,
        groups * dwell.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> run = fedsum.simulate(
    ...     task, AmplifiedFedAvg(period=2), fedsum.Cyclic(2, 1), rounds=500, local_steps=2, eta_l=0.02, eta_g=1.5
    ... )
    >>> run.x
    tensor([3.0755])
    """

    reads_movement: ClassVar[bool] = True

    unequal_steps: ClassVar[Literal["means", "displacements", "refused"]] = "displacements"

    period: int = 20

    def __post_init__(self) -> None:
        set_fields(self, period=integer("period", self.period, low=1))

    def init_server(self, x0: Tensor, first: Round) -> State:
        return {"x": x0, "w": x0}

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        return {"G": G}, {}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        x, w = server["x"], server["w"]
        if m:
            x = x - now.eta_l * now.K * (total["G"] / m)
        return amplified(x, w, self.period, now)


def amplified(x: Tensor, w: Tensor, period: int, now: Round) -> State:
    """x and w after the round; at the end of a window, x is amplified and the next window starts there."""
    if (now.t + 1) % period:
        return {"x": x, "w": w}
    x = w + now.eta_g * (x - w)
    return {"x": x, "w": x}
