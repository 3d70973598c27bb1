"""Packs runs of folders and packed files into one file."""

import math
from collections.abc import Sequence
from pathlib import Path

from ..base.checks import InputError
from ..base.toml_values import Table
from ..spec import toml_text
from .packed_file import PACKED_SUFFIX, PRECISION, PackedFile, is_packed, write_packed
from .run_reader import Run
from .run_source import open_runs, read_named_runs


def pack(inputs: str | Path | Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Packs all runs of `inputs` into one Parquet file, which `read_runs`, show and report read like a folder.

    Settings, environments, states and metrics are packed; checkpoints, models and logs are not. Integer metrics stay
    exact. Other metrics become float32, or float64 if a value is out of float32's range.

    Args:
      inputs: folders with runs, or packed files. Several are merged.
      out: the file, with the suffix .parquet. Default for a single folder: FOLDER.parquet beside the folder.

    Returns:
      The path of the file.

    >>> import fedsum, tempfile
    >>> task, options = fedsum.tasks.Quadratic.random(4, 2, seed=0), {"rounds": 10, "local_steps": 1, "eta_l": 0.1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(4, 2), folder=f"{folder}/sweep/run", **options)
    ...     packed = pack(f"{folder}/sweep")
    ...     packed.name, len(fedsum.read_runs(packed))
    ('sweep.parquet', 1)
    """
    paths = [Path(inputs)] if isinstance(inputs, str | Path) else [Path(path) for path in inputs]
    if not paths:
        raise InputError("inputs", [], "at least one folder or packed file")
    path = _output_path(paths, out)
    runs: dict[str, Run] = {}
    sweeps: list[Table] = []
    for source in paths:
        for name, run in read_named_runs(source).items():
            _add(runs, _merged_name(name, source) if len(paths) > 1 else name, run)
        sweeps += [sweep for sweep in open_runs(source).sweeps() if sweep not in sweeps]
    _refuse_lost_runs(path, runs)
    write_packed(path, runs, sweeps)
    return path


def _output_path(paths: Sequence[Path], out: str | Path | None) -> Path:
    if out is None:
        if len(paths) != 1 or is_packed(paths[0]):
            raise InputError("out", None, f"a file ending in {PACKED_SUFFIX}: only a single folder has a default")
        folder = paths[0].resolve()
        return folder.with_name(folder.name + PACKED_SUFFIX)
    path = Path(out)
    if not is_packed(path):
        raise InputError("out", str(path), f"a file ending in {PACKED_SUFFIX}")
    if not path.parent.is_dir():
        raise InputError("out", str(path), "a file in an existing folder")
    return path


def _merged_name(name: str, source: Path) -> str:
    """The name of a run in a merged file. A source that is a single run, named ".", gets the name of its folder."""
    return open_runs(source).output_folder.resolve().name if name == "." else name


def _add(runs: dict[str, Run], name: str, run: Run) -> None:
    if run.state == "running":
        raise InputError("run", str(run.folder), "is running; wait until it ends, or stop it with Ctrl-C")
    if name in runs and not _same_content(runs[name], run):
        accepted = f"differs from {runs[name].folder}, which has the same name; pack them into two files"
        raise InputError("run", str(run.folder), accepted)
    runs[name] = run


def _same_content(one: Run, other: Run) -> bool:
    return (
        (one.state, one.round, one.reason) == (other.state, other.round, other.reason)
        and toml_text(dict(one.config)) == toml_text(dict(other.config))
        and len(one.rows) == len(other.rows)
        and all(map(_same_row, one.rows, other.rows))
    )


def _same_row(one: dict[str, float], other: dict[str, float]) -> bool:
    return one.keys() == other.keys() and all(_same_number(value, other[name]) for name, value in one.items())


def _same_number(one: float, other: float) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return math.isclose(one, other, rel_tol=PRECISION) or (math.isnan(one) and math.isnan(other))


def _refuse_lost_runs(path: Path, runs: dict[str, Run]) -> None:
    """Refuses to overwrite a file that may be the only copy of other runs."""
    lost = [name for name in PackedFile(path).names() if name not in runs] if path.exists() else []
    if lost:
        accepted = f"it has {len(lost)} runs that would be lost, first {lost[0]}; pack it too, or give another file"
        raise InputError("out", str(path), accepted)
