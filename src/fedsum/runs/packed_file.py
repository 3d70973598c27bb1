"""The packed form of runs: one Parquet file with one row per evaluation.

Column `run` is the run's name, `round` the number of rounds done; each other column is a metric. A metric that a run
does not have is null. Settings, environment, state and reason of every run are in the file's metadata under the key
`fedsum`. Its value is JSON with a format number and a content. The content is compressed, because runs share settings.
"""

import base64
import json
import tomllib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..base.checks import InputError
from ..base.files import written_whole
from ..base.toml_values import Table
from ..spec import toml_text
from .run_reader import Run, config_problem

if TYPE_CHECKING:
    import pyarrow as pa

PACKED_SUFFIX = ".parquet"
_FORMAT = 1
_KEY = b"fedsum"
_RUN, _ROUND = "run", "round"
PRECISION = 1e-6
"""largest relative error of a packed number within float32's range"""


class PackedFile:
    """The runs of a file that `write_packed` wrote. The file is read lazily."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def output_folder(self) -> Path:
        """The folder for figures and tables of these runs, beside the file."""
        return self.path.with_suffix("")

    def names(self) -> list[str]:
        """The names of the runs, relative to the folder that was packed."""
        with _damage_refused(self.path):
            return [entry["name"] for entry in self._content["runs"]]

    def sweeps(self) -> list[Table]:
        """The settings of the sweeps that the runs come from."""
        with _damage_refused(self.path):
            return [tomllib.loads(text) for text in self._content["sweeps"]]

    def runs(self) -> dict[str, Run]:
        """All runs by name."""
        with _damage_refused(self.path):
            rows = self._rows({entry["name"]: entry["columns"] for entry in self._content["runs"]})
            return {entry["name"]: self._run(entry, rows[entry["name"]]) for entry in self._content["runs"]}

    def _run(self, entry: Table, rows: list[dict[str, float]]) -> Run:
        config = tomllib.loads(entry["config"])
        if problem := config_problem(config):
            raise ValueError(f"{entry['name']}: {problem}")
        clients = entry.get("clients")
        return Run(
            self.path / entry["name"],
            entry["state"],
            entry["round"],
            entry["reason"],
            config,
            rows,
            packed_clients=clients,
        )

    def _rows(self, columns: Mapping[str, Sequence[str]]) -> dict[str, list[dict[str, float]]]:
        """The rows of each run; `columns` has the metrics of each run in the run's own order."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path, page_checksum_verification=True) as file:
            table = file.read()
        values = {name: table.column(name).to_pylist() for name in table.column_names}
        rows: dict[str, list[dict[str, float]]] = {name: [] for name in columns}
        for index, name in enumerate(values[_RUN]):
            row = {column: values[column][index] for column in columns[name]}
            rows[name].append({column: value for column, value in row.items() if value is not None})
        return rows

    @cached_property
    def _content(self) -> Table:
        import pyarrow.parquet as pq

        metadata = pq.read_metadata(self.path).metadata or {}
        if _KEY not in metadata:
            raise ValueError("its metadata has no key fedsum")
        header = json.loads(metadata[_KEY])
        if header["format"] > _FORMAT:
            accepted = f"packed in format {header['format']}, this fedsum reads up to {_FORMAT}; update fedsum"
            raise InputError("file", str(self.path), accepted)
        content: Table = json.loads(zlib.decompress(base64.b64decode(header["content"])))
        return content


def write_packed(path: Path, runs: Mapping[str, Run], sweeps: Sequence[Table]) -> None:
    """Writes runs, by name, and the settings of their sweeps to one file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [name for name, run in runs.items() for _ in run.rows]
    rows = [row for run in runs.values() for row in run.rows]
    metrics = {name: [row.get(name) for row in rows] for name in _columns(rows) if name != _ROUND}
    if _RUN in metrics:
        raise InputError("metric", _RUN, "another name: this column of a packed file has the names of the runs")
    table = pa.table(
        {
            _RUN: pa.array(names, pa.string()).dictionary_encode(),
            _ROUND: pa.array([int(row[_ROUND]) for row in rows], pa.int32()),
            **{name: _array(values) for name, values in metrics.items()},
        }
    )
    header = {"format": _FORMAT, "content": _compressed(runs, sweeps)}
    floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    # Values of a curve share exponents and leading digits, which compress best as separate byte streams.
    encoding = {"use_dictionary": [_RUN], "column_encoding": dict.fromkeys(floats, "BYTE_STREAM_SPLIT")}
    compression = {"compression": "zstd", "compression_level": 19, "write_page_checksum": True}
    with written_whole(path) as part, pq.ParquetWriter(part, table.schema, **encoding, **compression) as writer:
        writer.write_table(table)
        # Not in the schema's metadata, which the file would store twice.
        writer.add_key_value_metadata({_KEY: json.dumps(header)})


def _compressed(runs: Mapping[str, Run], sweeps: Sequence[Table]) -> str:
    entries = [
        {
            "name": name,
            "state": run.state,
            "round": run.round,
            "reason": run.reason,
            "columns": _columns(run.rows),
            "config": toml_text(dict(run.config)),
            **_packed_clients(run),
        }
        for name, run in runs.items()
    ]
    content = {"runs": entries, "sweeps": [toml_text(sweep) for sweep in sweeps]}
    return base64.b64encode(zlib.compress(json.dumps(content).encode(), 9)).decode()


def _packed_clients(run: Run) -> Table:
    """The table of the clients' scores, to six digits, if the run has one."""
    if run.clients is None:
        return {}
    scores = run.clients.drop(columns=["client", "rounds"]).map(lambda value: float(f"{value:.6g}"))
    return {"clients": run.clients[["client", "rounds"]].to_dict("list") | scores.to_dict("list")}


def _columns(rows: Sequence[Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _array(values: Sequence[float | None]) -> "pa.Array":
    """Integers as int64; other numbers as float32, or as float64 if one of them is outside float32's range."""
    import pyarrow as pa

    if all(value is None or (isinstance(value, int) and -(2**63) <= value < 2**63) for value in values):
        return pa.array(values, pa.int64())
    wide = np.array([np.nan if value is None else value for value in values], np.float64)
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(np.float32)
    fits = np.isclose(narrow, wide, rtol=PRECISION, atol=0.0, equal_nan=True).all()
    # NaN is a value of a diverged run. Null means that the run does not have the metric.
    mask = np.array([value is None for value in values])
    return pa.array(narrow if fits else wide, mask=mask)


@contextmanager
def _damage_refused(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError("file", str(path), "an existing file that `fedsum pack` wrote") from None
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError, zlib.error) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError("file", str(path), f"a file that `fedsum pack` wrote ({reason})") from error


def is_packed(path: str | Path) -> bool:
    """Whether a path names a packed file; the file need not exist."""
    path = Path(path)
    return path.suffix.lower() == PACKED_SUFFIX and not path.is_dir()
