"""The observer that writes metrics for TensorBoard."""

from pathlib import Path
from typing import Any

from ..base.checks import InputError
from ..training import Observer, RoundDone, Training


class TensorBoard(Observer):
    """Writes every evaluation, tau and the number of active clients to FOLDER/tensorboard.

    >>> import fedsum  # doctest: +SKIP
    >>> fedsum.simulate(..., observers=[fedsum.TensorBoard("runs/first")])  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            accepted = "needs the extra: pip install -c constraints.txt 'fedsum[tensorboard]'"
            raise InputError("tensorboard", str(folder), accepted) from None
        self._writer_class, self._path = SummaryWriter, str(Path(folder) / "tensorboard")
        self._writer: Any = None

    def evaluated(self, run: Training, row: dict[str, float]) -> None:
        for name, value in row.items():
            if name not in ("round", "tau"):
                self._add(name, value, int(row["round"]))

    def round_done(self, run: Training, done: RoundDone) -> None:
        self._add("tau", done.tau, done.round)
        self._add("active", len(done.active), done.round)

    def _add(self, name: str, value: float, step: int) -> None:
        if self._writer is None:
            # Created after the run has claimed its folder. A resumed run replaces the values from this step on.
            self._writer = self._writer_class(self._path, purge_step=step)
        self._writer.add_scalar(name, value, step)

    def closed(self) -> None:
        if self._writer is not None:
            self._writer.close()
