"""Rules of merging, for deployments: replies may be missing, states lost, uplinks too large."""

from dataclasses import dataclass, field
from typing import Literal

from ...algorithms import Algorithm
from ...base.checks import InputError, integer, real
from .probes import telescopes


@dataclass(frozen=True, kw_only=True)
class MergeRules:
    """When replies are merged. Each field has its documentation in its metadata."""

    quorum: int = field(
        default=1,
        metadata={
            "doc": "replies needed to merge a round; with fewer, the round is repeated. If fewer clients than the "
            "quorum are scheduled or left, all of them must reply"
        },
    )
    on_loss: Literal["reset", "table"] = field(
        default="reset",
        metadata={
            "doc": "what to do when a client has lost its state. 'reset' begins a new epoch: all client states are "
            "reset, x is kept. 'table' keeps the sum of each client's merged uplinks on the server (N vectors), so "
            "that only this client starts over"
        },
    )
    norm_limit: float = field(
        default=25.0,
        metadata={
            "doc": "largest norm of a client's mean gradient h_i, as a multiple of the median norm of the clients' "
            "first h_i; clients scale larger gradients down, and the server refuses larger h_i. 0: no limit"
        },
    )

    def __post_init__(self) -> None:
        integer("quorum", self.quorum, low=1)
        if self.on_loss not in ("reset", "table"):
            raise InputError("on_loss", self.on_loss, "'reset' or 'table'")
        real("norm_limit", self.norm_limit, low=0)

    def check(self, algorithm: Algorithm, n: int) -> None:
        """Refuses rules that do not fit this algorithm or this number of clients."""
        integer("quorum", self.quorum, low=1, high=n, high_name="clients")
        if self.on_loss == "table" and not telescopes(algorithm):
            accepted = f"{algorithm.label}'s uplinks do not sum up to a state; use 'reset'"
            raise InputError("on_loss", self.on_loss, accepted)
