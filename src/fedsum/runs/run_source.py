"""Runs from a folder or from a packed file. `open_runs` chooses the reader."""

from pathlib import Path
from typing import Protocol

from ..base.checks import InputError
from ..base.toml_values import Table
from .layout import CONFIG, STATUS, SWEEP_FILE
from .packed_file import PackedFile, is_packed
from .run_reader import Run, find_runs
from .run_writer import read_toml


class RunSource(Protocol):
    """A folder or a packed file with runs."""

    @property
    def output_folder(self) -> Path:
        """The folder for figures and tables of these runs."""

    def names(self) -> list[str]:
        """The names of the runs, relative to the folder; "." if the folder is a run itself."""

    def runs(self) -> dict[str, Run]:
        """All runs by name, including damaged runs; refuses a source without runs."""

    def sweeps(self) -> list[Table]:
        """The settings of the sweeps that the runs come from; a merged file may have several."""


class FolderSource:
    """The runs in a folder, at any depth."""

    def __init__(self, path: Path) -> None:
        self.output_folder = path

    def names(self) -> list[str]:
        return [str(run.relative_to(self.output_folder)) for run in find_runs(self.output_folder)]

    def runs(self) -> dict[str, Run]:
        folder = self.output_folder
        if not folder.is_dir():
            raise InputError("folder", str(folder), "a folder with runs in it, or a file that `fedsum pack` wrote")
        runs = {name: Run.read(folder / name) for name in self.names()}
        if not runs:
            raise InputError("folder", str(folder), f"no runs in it: a run is a folder with a {CONFIG} and a {STATUS}")
        return runs

    def sweeps(self) -> list[Table]:
        path = self.output_folder / SWEEP_FILE
        return [read_toml(path)] if path.exists() else []


def open_runs(path: str | Path) -> RunSource:
    """The runs in a folder or a packed file; nothing is read yet."""
    return PackedFile(Path(path)) if is_packed(path) else FolderSource(Path(path))


def read_named_runs(path: str | Path) -> dict[str, Run]:
    """Every run in a folder or a packed file, by name; refuses a damaged run."""
    runs = open_runs(path).runs()
    for run in runs.values():
        if run.problem:
            raise InputError("run", str(run.folder), f"{run.problem}; repair it, or move the run to another folder")
    return runs


def read_runs(path: str | Path) -> list[Run]:
    """Every run in a folder or a packed file; refuses a path without runs or with a damaged run.

    >>> import fedsum, tempfile
    >>> task, options = fedsum.tasks.Quadratic.random(4, 2, seed=0), {"rounds": 10, "local_steps": 1, "eta_l": 0.1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(4, 2), folder=f"{folder}/run", **options)
    ...     [(run.state, run.round, len(run.rows)) for run in read_runs(folder)]
    [('finished', 10, 2)]
    """
    return list(read_named_runs(path).values())
