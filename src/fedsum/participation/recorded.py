"""Recorded schedules have an end."""

from ..base.checks import InputError
from .available_clients import Availability
from .explicit import Explicit
from .sampled import Sampled
from .schedule import Schedule
from .trace import Trace


def recorded_rounds(schedule: Schedule) -> int | None:
    """The number of recorded rounds; None for a schedule that is not recorded."""
    if isinstance(schedule, Sampled):
        return recorded_rounds(schedule.availability)
    recorded = schedule.recorded if isinstance(schedule, Trace) else schedule
    return recorded.rounds if isinstance(recorded, Explicit | Availability) else None


def refuse_short(schedule: Schedule, rounds: int) -> None:
    """Refuses a recorded schedule that has fewer rounds than a run and does not start over."""
    if isinstance(schedule, Sampled):
        return refuse_short(schedule.availability, rounds)
    recorded = schedule.recorded if isinstance(schedule, Trace) else schedule
    if isinstance(recorded, Explicit | Availability) and not recorded.repeat and recorded.rounds < rounds:
        accepted = f"the schedule has {recorded.rounds} rounds; use at most that many, or repeat = true to start over"
        raise InputError("rounds", rounds, accepted)
