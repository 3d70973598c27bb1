"""Metrics for TensorBoard, as a callback."""

from collections.abc import Callable
from pathlib import Path

from ..checks import InputError
from ..simulate import RoundDone


class TensorBoard:
    """An `on_round` that writes every evaluation, tau and the active clients to FOLDER/tensorboard.

    >>> import fedsum  # doctest: +SKIP
    >>> fedsum.simulate(..., on_round=TensorBoard("runs/first"))  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path, then: Callable[[RoundDone], None] | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            accepted = "needs the extra: pip install -c constraints.txt 'fedsum[tensorboard]'"
            raise InputError("tensorboard", str(folder), accepted) from None
        self._writer = SummaryWriter(str(Path(folder) / "tensorboard"))
        self._then = then

    def __call__(self, done: RoundDone) -> None:
        for name, value in (done.metrics or {}).items():
            self._writer.add_scalar(name, value, done.round)
        self._writer.add_scalar("active", len(done.active), done.round)
        if self._then:
            self._then(done)

    def close(self) -> None:
        self._writer.close()
