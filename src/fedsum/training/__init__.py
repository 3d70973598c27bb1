"""The training core: options, state, one round, the loop over rounds, observers, history. It writes no files."""

from .history import History
from .local_steps import mean_steps, step_counts
from .observer import Callback, Observer, RoundDone, Training
from .options import OPTIONS, RESULT_NEUTRAL, Options
from .outstanding import Outstanding
from .progress_bar import ProgressBar, shows_progress
from .ranks import Ranks, joined_ranks
from .rates import (
    Constant,
    Cosine,
    Exponential,
    InverseSqrt,
    PerRound,
    Rate,
    Step,
    parse_rate,
    rate_values,
)
from .round import play_round
from .state import RunState
from .stopping import StopWhen
from .training_loop import refuse_mismatch, train

__all__ = [
    "OPTIONS",
    "RESULT_NEUTRAL",
    "Callback",
    "Constant",
    "Cosine",
    "Exponential",
    "History",
    "InverseSqrt",
    "Observer",
    "Options",
    "Outstanding",
    "PerRound",
    "ProgressBar",
    "Ranks",
    "Rate",
    "RoundDone",
    "RunState",
    "Step",
    "StopWhen",
    "Training",
    "joined_ranks",
    "mean_steps",
    "parse_rate",
    "play_round",
    "rate_values",
    "refuse_mismatch",
    "shows_progress",
    "step_counts",
    "train",
]
