"""The options of a run: all settings besides its task, algorithm and schedule.

This module defines the name, type, default, check and documentation of each option. Files, `--set`, `fedsum settings`
and the documentation's tables use these definitions. The signature of `simulate()` repeats names and defaults, for
editors and type checkers; a test compares the two.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Literal

import torch

from ..algorithms import Round
from ..base.checks import InputError, integer, nearest, probability, real, set_fields
from ..base.checks import seed as check_seed
from ..base.toml_values import Table
from ..engine import ENGINES
from ..participation import Devices, check_devices
from .rates import PerRound, Rate, check_rate, dump_rate, parse_rate
from .stopping import StopWhen, check_stop, parse_stop

DTYPES = {"float32": torch.float32, "float64": torch.float64}
_LESS_PRECISE = "; for a network with fewer bits, use precision='bf16'"
Check = Callable[[str, Any], Any]
"""from the option's name and value to the stored value; raises an InputError"""


def _option(
    doc: str,
    check: Check,
    *,
    symbol: str = "",
    default: Any = MISSING,
    parse: Callable[[Any], Any] | None = None,
    changes_result: bool = True,
) -> Any:
    """A field of Options.

    Args:
      doc: one line for people.
      check: applied to every value, wherever it comes from.
      symbol: the paper's symbol.
      default: the default; without one the option is required.
      parse: converts the TOML value; by default it is used unchanged.
      changes_result: whether the run's result depends on it, beyond rounding.
    """
    metadata = {"doc": doc, "check": check, "symbol": symbol, "parse": parse, "changes_result": changes_result}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def _whole(low: int) -> Check:
    return lambda name, value: integer(name, value, low=low)


def _positive(name: str, value: Any) -> float:
    return real(name, value, above=0)


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _one_of(*accepted: str) -> Check:
    def check(name: str, value: Any) -> Any:
        if value not in accepted:
            raise InputError(name, value, nearest(str(value), accepted))
        return value

    return check


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(name, value, "true or false")
    return value


def _dtype(name: str, value: Any) -> torch.dtype:
    if not isinstance(value, torch.dtype) or value not in DTYPES.values():
        raise InputError(name, value, f"torch.float32 or torch.float64{_LESS_PRECISE}")
    return value


def _parse_dtype(name: Any) -> torch.dtype:
    if not isinstance(name, str) or name not in DTYPES:
        raise InputError("dtype", name, f"'float32' or 'float64'{_LESS_PRECISE}")
    return DTYPES[name]


def _device(name: str, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"cuda:{value}"  # as torch reads a number
    if not isinstance(value, str | torch.device):
        raise InputError(name, value, "'auto', 'cpu', 'cuda', or a torch device")
    return str(value)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of simulate(), as files and `--set` name them."""

    rounds: int = _option("rounds of training", _whole(1), symbol="T")
    local_steps: int | None = _option(
        "local steps per active client and round",
        _optional(_whole(1)),
        symbol="K",
        default=None,
    )
    local_epochs: int | None = _option(
        "instead of `local_steps`: passes over a client's own samples per round; one of the two is required",
        _optional(_whole(1)),
        default=None,
    )
    eta_l: Rate = _option(
        "local learning rate: a number, or a function of the round (in files, a table with a name, or a list)",
        check_rate,
        symbol="eta_l",
        parse=parse_rate,
    )
    eta_g: float = _option("global learning rate", _positive, symbol="eta_g", default=1.0)
    batch_size: int = _option("samples per gradient", _whole(1), default=128)
    clip_norm: float | None = _option(
        "largest norm of a gradient; larger gradients are scaled down to it", _optional(_positive), default=None
    )
    weight_decay: float = _option(
        "adds weight_decay * x to every gradient", lambda name, value: real(name, value, low=0), default=0.0
    )
    seed: int = _option(
        "seed of the initial weights, the schedule and the batches", lambda _, value: check_seed(value), default=0
    )
    eval_every: int = _option(
        "rounds between evaluations; the initial and the final model are always evaluated", _whole(1), default=10
    )
    eval_last: int = _option("also evaluate after each of the last `eval_last` rounds", _whole(0), default=0)
    eval_model: Literal["server", "clients"] | None = _option(
        "'server', or 'clients' for the mean of all N clients' models; default: the algorithm's own choice",
        _optional(_one_of("server", "clients")),
        default=None,
    )
    stop: StopWhen | None = _option(
        "early stopping: a table with `metric`, and `above`, `below` or `patience` (rounds since the best value)",
        check_stop,
        default=None,
        parse=parse_stop,
    )
    per_client: bool = _option(
        "also evaluate loss and accuracy per client. Adds a table with one row per client, and three metrics of each:"
        " mean, mean of the worst tenth, and the gap between the tenth of the clients with the most active rounds and"
        " the tenth with the fewest",
        _boolean,
        default=False,
    )
    devices: Devices | None = _option(
        "for simulated time, the clients' devices: a table with `seconds_per_step`, and `up` and `down` in bytes per"
        " second, or with the `path` of a file that has these columns",
        check_devices,
        default=None,
        parse=Devices.parse,
    )
    deadline: float | None = _option(
        "with devices: seconds after which a round closes; clients that are not done by then do not take part",
        _optional(_positive),
        default=None,
    )
    enough: float | None = _option(
        "with devices: a round closes when this share of its clients is done; the others do not take part",
        _optional(probability),
        default=None,
    )
    dtype: torch.dtype = _option(
        "dtype of all vectors: float32 or float64", _dtype, default=torch.float32, parse=_parse_dtype
    )
    precision: Literal["fp32", "tf32", "bf16"] = _option(
        "'fp32' (full float32), 'tf32' (on CUDA: operands of products rounded to 10 mantissa bits, faster) or 'bf16'"
        " (the network computes in bfloat16)",
        _one_of("fp32", "tf32", "bf16"),
        default="fp32",
    )
    deterministic: bool = _option("on CUDA: repeated runs are bit-identical, but slower", _boolean, default=False)
    engine: str = _option(
        "'auto', 'loop', 'batched' (stacked clients), 'streams' (clients in parallel, for large networks) or 'workers'"
        " (CPU processes); all give the same result up to rounding",
        _one_of(*ENGINES),
        default="auto",
        changes_result=False,
    )
    device: str | torch.device = _option(
        "'auto', 'cpu', 'cuda' or a torch device", _device, default="auto", changes_result=False
    )
    checkpoint_rounds: int | None = _option(
        "with a folder: rounds between checkpoints, besides those after `checkpoint_seconds`",
        _optional(_whole(1)),
        default=None,
        changes_result=False,
    )
    checkpoint_seconds: float = _option(
        "with a folder: seconds between checkpoints; longer if checkpoints pause training for long",
        _positive,
        default=60.0,
        changes_result=False,
    )

    def __post_init__(self) -> None:
        set_fields(
            self,
            **{option.name: option.metadata["check"](option.name, getattr(self, option.name)) for option in OPTIONS},
        )
        if (self.local_steps is None) == (self.local_epochs is None):
            both = self.local_steps is not None
            accepted = "remove it, or local_epochs" if both else "is required, or local_epochs"
            raise InputError("local_steps", self.local_steps, accepted)
        if isinstance(self.eta_l, PerRound) and len(self.eta_l.values) < self.rounds:
            raise InputError("eta_l", f"{len(self.eta_l.values)} values", f"one value for each of {self.rounds} rounds")

        for name in ("deadline", "enough"):
            if self.devices is None and getattr(self, name) is not None:
                raise InputError(name, getattr(self, name), "only together with devices, from which time follows")

    @classmethod
    def parse(cls, table: Mapping[str, Any]) -> "Options":
        """From a table of settings; `dump` is the inverse."""
        names = [option.name for option in OPTIONS]
        for name, value in table.items():
            if name not in names:
                raise InputError(name, value, f"no such setting; {nearest(name, names)}")
        for option in OPTIONS:
            if option.default is MISSING and option.name not in table:
                raise InputError(option.name, None, "is required")
        parsers = {option.name: option.metadata["parse"] for option in OPTIONS}
        return cls(**{name: parsers[name](value) if parsers[name] else value for name, value in table.items()})

    def dump(self) -> Table:
        """A table of TOML types."""
        table: Table = {}
        for option in OPTIONS:
            value = getattr(self, option.name)
            if isinstance(value, torch.dtype):
                value = str(value).removeprefix("torch.")
            if option.name == "eta_l":
                value = dump_rate(value, self.rounds)
            if isinstance(value, StopWhen | Devices):
                value = value.dump()
            if value is not None:
                table[option.name] = value
        return table

    def record(self, t: int, N: int, K: float) -> Round:
        """The record of round t, which server and clients share; K is the (mean) number of local steps."""
        rate = _positive(f"eta_l({t})", self.eta_l(t)) if callable(self.eta_l) else float(self.eta_l)
        return Round(t=t, N=N, K=K, eta_l=rate, eta_g=float(self.eta_g))

    def evaluates(self, done: int) -> bool:
        """Whether the model is evaluated after `done` rounds."""
        return done % self.eval_every == 0 or done == self.rounds or done > self.rounds - self.eval_last

    @property
    def everyone_in_time(self) -> bool:
        """Whether no client can be late."""
        return self.deadline is None and self.enough in (None, 1.0)

    def torch_device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
        except (RuntimeError, TypeError):
            raise InputError("device", self.device, "'auto', 'cpu', 'cuda', or a torch device") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            raise InputError("device", str(self.device), "no CUDA device is available; use 'auto' or 'cpu'")
        return device


OPTIONS: tuple[Field[Any], ...] = fields(Options)
RESULT_NEUTRAL = tuple(option.name for option in OPTIONS if not option.metadata["changes_result"])
"""options that do not change the result beyond rounding: how a run is computed and when it is saved"""
