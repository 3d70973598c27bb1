"""Metrics for TensorBoard, as a callback."""

from collections.abc import Callable
from pathlib import Path

from ..base.checks import InputError
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
        self._make, self._path, self._then = SummaryWriter, str(Path(folder) / "tensorboard"), then
        self._writer: SummaryWriter | None = None

    def __call__(self, done: RoundDone) -> None:
        if self._writer is None:
            # Made now, when the folder is the run's. What was written before a resume, and comes again, is dropped.
            self._writer = self._make(self._path, purge_step=done.round)
        for name, value in (done.metrics or {}).items():
            self._writer.add_scalar(name, value, done.round)
        self._writer.add_scalar("active", len(done.active), done.round)
        if self._then:
            self._then(done)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
