"""A client's participation intervals, from which its weight is estimated."""

import torch
from torch import Tensor

from .base import State


def no_intervals(x0: Tensor) -> State:
    """The record of a client that was never active."""

    def scalar(value: int) -> Tensor:
        return torch.tensor(value, device=x0.device)

    return {"last": scalar(-1), "count": scalar(0), "sum": scalar(0)}


def interval_weight(record: State, t: int, cutoff: int) -> tuple[Tensor, State]:
    """The weight of a client that is active in round t, and its next record.

    The weight is the mean of the intervals that were recorded before this round, or 1 before the first. An interval
    ends when the client is active, and when it has been away for `cutoff` rounds. Intervals are computed from the
    client's last active round, so absent clients cost no time.
    """
    missed = t - record["last"] - 1
    cutoffs = missed // cutoff
    count, total = record["count"] + cutoffs, record["sum"] + cutoffs * cutoff
    weight = torch.where(count > 0, total.double() / count.clamp(min=1), 1.0)
    return weight, {
        "last": torch.full_like(missed, t),
        "count": count + 1,
        "sum": total + missed % cutoff + 1,
    }
