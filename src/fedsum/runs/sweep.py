"""Sweeps: many runs from one file, executed in parallel and resumed.

    rounds = 500
    ...
    [sweep]
    "task.name" = ["mnist", "svhn"]
    algorithm = ["FedAvg", "FedSUM", {name = "FedAU", cutoff = 50}]
    "eta_l.eta_0, eta_g" = [[0.01, 1.0], [0.001, 10.0]]    # varied together
    seed = [0, 1, 2]

Every combination is a run, in a folder named after its values.
"""

import itertools
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..base.checks import InputError, short
from ..base.toml_values import Table, sha256
from ..spec import PARTS, SWEEP, RunSpec, assigned, display_label, display_name
from ..training import RESULT_NEUTRAL
from .execute import execute_quietly
from .layout import CONFIG
from .pools import Pool
from .recorder import refuse_without_checkpoint
from .run_reader import OVER, Run
from .run_source import open_runs
from .run_writer import read_toml, refuse_difference
from .stop_requests import stop_requests

_MAX_ATTEMPTS = 3
"""a run fails when its worker has died this many times"""
_POLL_SECONDS = 0.5
_LONGEST = 80
"""characters of a setting's part of a run's name"""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep, with parsed settings."""

    name: str
    spec: RunSpec
    folder: Path
    chosen: Mapping[str, Any]
    """the values of the swept settings"""
    table: Table
    """all settings, as in the sweep's file"""

    @property
    def parts(self) -> dict[str, str]:
        """The parts of the name by swept setting: {"algorithm": "FedAvg", "seed": "seed=0"}."""
        return _parts(self.name, self.chosen)


def expand(table: Mapping[str, Any], folder: Path) -> list[PlannedRun]:
    """The runs of a file. A file without [sweep] is a single run in the folder itself."""
    return [
        PlannedRun(name, RunSpec.parse(settings), folder / name, chosen, settings)
        for name, settings, chosen in _combinations(table)
    ]


def first_settings(table: Mapping[str, Any]) -> Table:
    """The settings of a file, or of a sweep's first run; they are not parsed."""
    return _combinations(table)[0][1]


def _combinations(table: Mapping[str, Any]) -> list[tuple[str, Table, dict[str, Any]]]:
    """(name, settings, swept values) of every run. Settings are not parsed, because that might read a trace."""
    base = {key: value for key, value in table.items() if key != SWEEP}
    axes = table.get(SWEEP, {})
    if not isinstance(axes, Mapping):
        raise InputError(SWEEP, axes, "a table of settings, each with a list of values")
    keys = [name for key in axes for name in _names(key)]
    _refuse_swept_twice(keys)
    choices = [_axis(key, values, keys) for key, values in axes.items()]
    runs: dict[str, tuple[str, Table, dict[str, Any]]] = {}
    for combination in itertools.product(*choices):
        run_table = dict(base)
        chosen: dict[str, Any] = {}
        for _, settings in combination:
            for key, value in settings.items():
                run_table, chosen = assigned(run_table, key, value), chosen | {key: value}
        name = ",".join(label for label, _ in combination)
        if name in runs:
            raise InputError(SWEEP, name, "the same values twice")
        runs[name] = name, run_table, chosen
    return list(runs.values())


def _refuse_swept_twice(keys: Sequence[str]) -> None:
    """Refuses a setting with two lists of values, as an included file and the file itself may give it.

    A table may be followed by one of its fields. A field followed by its table would be overwritten.
    """
    for place, key in enumerate(keys):
        for earlier in keys[:place]:
            if earlier == key or earlier.startswith(f"{key}."):
                accepted = f"is swept twice: by {earlier!r} before it; remove one of them, here or in an included file"
                raise InputError(f"{SWEEP}.{key}", key, accepted)


def _parts(name: str, chosen: Mapping[str, Any]) -> dict[str, str]:
    return dict(zip(chosen, name.split(","), strict=True)) if chosen else {}


def _names(key: str) -> list[str]:
    return [name.strip() for name in key.split(",")]


def _axis(key: str, values: Any, all_keys: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """(label, settings) of each value. A key of several names takes rows with one value per name."""
    names = _names(key)
    if not isinstance(values, list) or not values:
        raise InputError(f"{SWEEP}.{key}", values, "a list of at least one value")
    rows = values if len(names) > 1 else [[value] for value in values]
    for row in rows:
        if not isinstance(row, list) or len(row) != len(names):
            raise InputError(f"{SWEEP}.{key}", row, f"a list of {len(names)} values, one per name")
    columns = [_labels(name, [row[i] for row in rows], all_keys) for i, name in enumerate(names)]
    labels = [",".join(parts) for parts in zip(*columns, strict=True)]
    return [(label, dict(zip(names, row, strict=True))) for label, row in zip(labels, rows, strict=True)]


def _labels(key: str, values: Sequence[Any], all_keys: Sequence[str]) -> list[str]:
    """Short labels for the values of one setting, valid in a folder's name."""
    part, _, last = key.rpartition(".")
    part = part if last == "name" else key
    tables = [value if isinstance(value, Mapping) else {"name": value} for value in values]
    names = [display_label(part, table) for table in tables]
    # "package.module:function" is shown as its last part, unless two functions would then have the same name.
    own_names = [name.rpartition(":")[2] for name in names]
    if len(set(own_names)) == len(set(names)):
        names = own_names
    plain = all(isinstance(value, str | Mapping) for value in values)
    # `seed` and `task.seed` are two settings: the last name is unique if no other key ends with it.
    is_unique = sum(other.rpartition(".")[2] == last for other in all_keys) == 1
    labels = []
    for table, name in zip(tables, names, strict=True):
        fields = [f"{field}={value}" for field, value in table.items() if field != "name"]
        label = name if plain else f"{last if is_unique else key}={name}"
        # Fields are added only if several values have the same name.
        labels.append(label if names.count(name) == 1 else "-".join([label, *fields]))
    return _as_file_names(labels)


def _as_file_names(labels: Sequence[str]) -> list[str]:
    """The labels in letters that every file system allows, at most 80; a digest keeps different labels apart."""
    names = [re.sub(r"[^A-Za-z0-9._=+-]+", "-", label)[:_LONGEST] or "default" for label in labels]
    labels_of = {name: {label for label, own in zip(labels, names, strict=True) if own == name} for name in names}
    return [
        name if len(labels_of[name]) == 1 else f"{name[: _LONGEST - 9]}-{sha256(label)[:8]}"
        for label, name in zip(labels, names, strict=True)
    ]


def run_all(
    runs: Sequence[PlannedRun],
    pool: Pool,
    *,
    keep_checkpoints: bool = False,
    tensorboard: bool = False,
    extend: bool = False,
    on_look: Callable[[Mapping[str, Run]], None] | None = None,
) -> dict[str, Run]:
    """Executes the runs without a result, and returns all runs by name.

    Several processes may execute one sweep: runs of another process are left to it.

    Args:
      runs: the runs of `expand`.
      pool: the workers.
      keep_checkpoints: keep the checkpoints of finished runs.
      tensorboard: also write TensorBoard files.
      extend: runs with fewer rounds go on to the new number.
      on_look: called every half second with all runs by name.
    """
    current = read_planned(runs, extend=extend)
    by_name = {run.name: run for run in runs}
    waiting = deque(run.name for run in runs if not _is_over(run, current[run.name]))
    running: dict[Future[Run], str] = {}
    attempts: Counter[str] = Counter()
    options = {"shared": pool.shared, "keep_checkpoint": keep_checkpoints, "tensorboard": tensorboard, "extend": extend}
    with pool, stop_requests() as request:
        while running or (waiting and not request.requested):
            while waiting and len(running) < pool.width and not request.requested:
                name = waiting.popleft()
                run = by_name[name]
                if _is_over(run, there := Run.read_or_new(run.folder)):  # another process has finished it
                    current[name] = there
                    continue
                attempts[name] += 1
                # A worker gets the settings as a table: it cannot unpickle a class of the user's own file.
                future = pool.submit(execute_quietly, run.table, run.folder, working_folder=Path.cwd(), **options)
                running[future] = name
            for future in wait(running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED).done:
                name = running.pop(future)
                error = future.exception()
                if not error:
                    current[name] = future.result()
                elif request.requested:
                    current[name] = Run.read_or_new(by_name[name].folder)
                elif attempts[name] < _MAX_ATTEMPTS:
                    waiting.append(name)  # only the worker died: the run resumes from its checkpoint
                else:
                    reason = f"its worker died {attempts[name]} times ({type(error).__name__}: {error})"
                    current[name] = replace(Run.read_or_new(by_name[name].folder), state="failed", reason=reason)
            if request.requested:
                pool.ask_to_stop()
            if on_look:
                on_look(current | {name: Run.read_or_new(by_name[name].folder) for name in running.values()})
    return {name: _settled(by_name[name], run) for name, run in current.items()}


def _settled(planned: PlannedRun, run: Run) -> Run:
    """A run that another process executes, or that failed because the other one finished it, as it is now."""
    if run.state in ("running", "failed") and _is_over(planned, there := Run.read_or_new(planned.folder)):
        return there
    return run


def read_planned(runs: Sequence[PlannedRun], *, extend: bool = False) -> dict[str, Run]:
    """Reads the folders of all runs, by name; refuses a folder with other settings.

    With `extend`, a run may have fewer rounds. It needs a checkpoint to go on from.
    """
    return {run.name: _read_one(run, extend) for run in runs}


def _read_one(planned: PlannedRun, extend: bool) -> Run:
    """Reads the folder of a run, without the reason of an earlier failure."""
    if (planned.folder / CONFIG).exists():
        _refuse_other_settings(planned, read_toml(planned.folder / CONFIG), extend)
    run = Run.read_or_new(planned.folder)
    if extend and not _is_over(planned, run):
        refuse_without_checkpoint(planned.folder)
    return run if run.state in OVER else replace(run, reason="")


def _is_over(planned: PlannedRun, run: Run) -> bool:
    """Whether a run has its result; a finished run with fewer rounds is not over."""
    return run.state in OVER and not (
        run.state == "finished" and run.config.get("rounds", 0) < planned.spec.options.rounds
    )


def _refuse_other_settings(planned: PlannedRun, recorded: Table, extend: bool = False) -> None:
    spec, schedule = planned.spec, recorded.get("schedule")
    n = schedule.get("n") if isinstance(schedule, dict) else None
    if spec.schedule.n is None and n is not None:
        spec = spec.with_clients(n)
    refuse_difference(recorded, spec.dump(), planned.folder, extend=extend)


def read_results(runs: Sequence[PlannedRun], table: Mapping[str, Any], path: Path) -> dict[str, Run]:
    """Reads all runs of a sweep from a packed file, by name; refuses a file without the result of a run.

    Args:
      runs: the runs of `expand(table, path)`.
      table: the settings of the sweep.
      path: the packed file.
    """
    refuse_another(table, path)
    packed = {run.folder: run for run in open_runs(path).runs().values()}
    current = {planned.name: packed.get(planned.folder, Run(planned.folder)) for planned in runs}
    for planned in runs:
        if recorded := current[planned.name].config:
            _refuse_other_settings(planned, dict(recorded))
    missing = [name for name, run in current.items() if run.state not in OVER]
    if missing:
        reason = f"{len(missing)} of {len(runs)} runs have no result in it, first {missing[0]}"
        raise InputError("folder", str(path), f"{reason}; give a folder to run them in")
    return current


def refuse_another(table: Mapping[str, Any], path: Path, free: Sequence[str] = ()) -> None:
    """Refuses the folder of another sweep, because figures would show both; a sweep may get more values.

    Settings in `free` may differ.
    """
    for recorded in open_runs(path).sweeps():
        recorded_settings, settings = (
            {key: _canonical(key, value) for key, value in sweep.items() if key not in (*RESULT_NEUTRAL, SWEEP, *free)}
            for sweep in (recorded, table)
        )
        for key in [*settings, *recorded_settings]:
            recorded_value, value = recorded_settings.get(key), settings.get(key)
            if recorded_value != value:
                accepted = f"the sweep in {path} has {short(recorded_value)}; use that value, or another folder"
                raise InputError(key, value, accepted)


def _canonical(part: str, value: Any) -> Any:
    """A setting with its name in canonical spelling."""
    if part not in PARTS:
        return value
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        return value
    return {**table, "name": display_name(part, table["name"])}


def planned_names(path: Path) -> list[str]:
    """The names of all runs of a sweep in its order, for a folder or a packed file; empty if it is no sweep."""
    return list(planned_parts(path))


def planned_parts(path: Path) -> dict[str, dict[str, str]]:
    """For each name of `planned_names`, its parts by swept setting, as in `PlannedRun.parts`."""
    sweeps = open_runs(path).sweeps()
    return {name: _parts(name, chosen) for sweep in sweeps for name, _, chosen in _combinations(sweep)}


def not_begun(path: Path) -> list[str]:
    """The names of a sweep's runs that have not started, for a folder or a packed file."""
    planned = planned_names(path)
    begun = set(open_runs(path).names()) if planned else set()
    return [name for name in planned if name not in begun]
