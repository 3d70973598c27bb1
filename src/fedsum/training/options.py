"""What a run is told besides its task, algorithm and schedule: one documented field each, checked at the door."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch

from ..algorithms import Round
from ..base.checks import InputError, integer, keep, nearest, real
from ..base.checks import seed as check_seed
from ..engine import ENGINES

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def _doc(symbol: str, doc: str) -> dict[str, str]:
    return {"symbol": symbol, "doc": doc}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of simulate(), as files and `--set` name them."""

    rounds: int = field(metadata=_doc("T", "rounds of training"))
    local_steps: int = field(metadata=_doc("K", "local steps of each active client"))
    eta_l: float | Callable[[int], float] = field(
        metadata=_doc("eta_l", "local learning rate, a number or a function of the round")
    )
    eta_g: float = field(default=1.0, metadata=_doc("eta_g", "global learning rate"))
    batch_size: int = field(default=128, metadata=_doc("", "samples a gradient"))
    seed: int = field(default=0, metadata=_doc("", "of initial weights, schedule and batches"))
    eval_every: int = field(
        default=10, metadata=_doc("", "evaluate after every so many rounds, before the first and after the last")
    )
    eval_last: int = field(default=0, metadata=_doc("", "evaluate each of the last so many rounds too"))
    eval_model: Literal["server", "clients"] | None = field(
        default=None,
        metadata=_doc(
            "", "'server', or 'clients' for the mean of all N models; default: as the algorithm's authors do"
        ),
    )
    dtype: torch.dtype = field(default=torch.float32, metadata=_doc("", "of all vectors: float32 or float64"))
    precision: Literal["fp32", "tf32"] = field(
        default="fp32", metadata=_doc("", "on CUDA: 'fp32', or 'tf32' for rounded factors")
    )
    deterministic: bool = field(
        default=False, metadata=_doc("", "on CUDA: the same bits for the same seed, at some cost")
    )
    engine: str = field(default="auto", metadata=_doc("", "'auto', 'loop', 'batched' or 'workers'"))
    device: str | torch.device = field(default="auto", metadata=_doc("", "'auto', 'cpu', 'cuda' or a torch device"))
    checkpoint_rounds: int | None = field(
        default=None, metadata=_doc("", "with a folder: a checkpoint every so many rounds")
    )
    checkpoint_seconds: float = field(
        default=60.0, metadata=_doc("", "with a folder: a checkpoint every so many seconds")
    )

    def __post_init__(self) -> None:
        keep(
            self,
            rounds=integer("rounds", self.rounds, low=1),
            local_steps=integer("local_steps", self.local_steps, low=1),
            batch_size=integer("batch_size", self.batch_size, low=1),
            seed=check_seed(self.seed),
            eval_every=integer("eval_every", self.eval_every, low=1),
            eval_last=integer("eval_last", self.eval_last, low=0),
            eta_g=real("eta_g", self.eta_g, above=0),
        )
        if not callable(self.eta_l):
            keep(self, eta_l=real("eta_l", self.eta_l, above=0))
        if self.eval_model not in (None, "server", "clients"):
            raise InputError("eval_model", self.eval_model, "'server', 'clients' or None")
        if not (isinstance(self.dtype, torch.dtype) and self.dtype.is_floating_point):
            raise InputError("dtype", self.dtype, "torch.float32 or torch.float64")
        if self.engine not in ENGINES:
            raise InputError("engine", self.engine, nearest(str(self.engine), ENGINES))
        if self.precision not in ("fp32", "tf32"):
            raise InputError("precision", self.precision, "'fp32' or 'tf32'")
        if not isinstance(self.deterministic, bool):
            raise InputError("deterministic", self.deterministic, "true or false")
        if self.checkpoint_rounds is not None:
            keep(self, checkpoint_rounds=integer("checkpoint_rounds", self.checkpoint_rounds, low=1))
        keep(self, checkpoint_seconds=real("checkpoint_seconds", self.checkpoint_seconds, above=0))

    def record(self, t: int, N: int) -> Round:
        """What everyone knows in round t."""
        rate = real(f"eta_l({t})", self.eta_l(t), above=0) if callable(self.eta_l) else float(self.eta_l)
        return Round(t=t, N=N, K=self.local_steps, eta_l=rate, eta_g=float(self.eta_g))

    def evaluates(self, done: int) -> bool:
        """Whether the model is judged after `done` rounds."""
        return done % self.eval_every == 0 or done == self.rounds or done > self.rounds - self.eval_last

    def torch_device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
        except (RuntimeError, TypeError):
            raise InputError("device", self.device, "'auto', 'cpu', 'cuda', or a torch device") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            raise InputError("device", str(self.device), "no CUDA device is here; 'auto' or 'cpu' is")
        return device


HOW = ("engine", "device", "checkpoint_rounds", "checkpoint_seconds")
"""Options that say how a run is computed and kept, and change nothing of its result beyond rounding."""
