"""Many runs from one file: expanded, run side by side, resumed, reported.

    rounds = 500
    ...
    [sweep]
    "task.name" = ["mnist", "svhn"]
    algorithm = ["FedAvg", "FedSUM", {name = "FedAU", cutoff = 50}]
    "eta_l.eta_0, eta_g" = [[0.01, 1.0], [0.001, 10.0]]    # these go together
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
from ..training.options import HOW
from .config import SWEEP, Config, assigned
from .execute import execute_quietly
from .folder import CONFIG, read_toml, refuse_difference
from .interrupt import stop_requests
from .pools import Pool
from .recipes import Table
from .standing import OVER, Standing, standing

SWEEP_FILE = "sweep.toml"
"""what a sweep's folder keeps of the file it came from"""
_ATTEMPTS = 3
"""times a run is begun again after its worker died under it"""
_LOOK_EVERY = 0.5


@dataclass(frozen=True)
class Planned:
    """One run of a sweep."""

    name: str
    table: Table
    folder: Path
    chosen: dict[str, Any]
    """the values of the swept settings"""


def expand(table: Mapping[str, Any], folder: Path) -> list[Planned]:
    """All runs of a file, each checked; a file without lists is a single run in the folder itself."""
    runs = _expanded(table, folder)
    for run in runs:
        Config.of(run.table)
    return runs


def _expanded(table: Mapping[str, Any], folder: Path) -> list[Planned]:
    base = {key: value for key, value in table.items() if key != SWEEP}
    axes = table.get(SWEEP, {})
    if not isinstance(axes, Mapping):
        raise InputError(SWEEP, axes, "a table of settings, each with a list of values")
    choices = [_axis(key, values) for key, values in axes.items()]
    runs: dict[str, Planned] = {}
    for combination in itertools.product(*choices):
        changed = dict(base)
        chosen: dict[str, Any] = {}
        for _, settings in combination:
            for key, value in settings.items():
                changed, chosen = assigned(changed, key, value), chosen | {key: value}
        name = ",".join(label for label, _ in combination)
        if name in runs:
            raise InputError(SWEEP, name, "the same values twice")
        runs[name] = Planned(name, changed, folder / name, chosen)
    return list(runs.values())


def _axis(key: str, values: Any) -> list[tuple[str, dict[str, Any]]]:
    """(label, settings) of each value; a key of several names takes rows of values that go together."""
    names = [name.strip() for name in key.split(",")]
    if not isinstance(values, list) or not values:
        raise InputError(f"{SWEEP}.{key}", values, "a list of at least one value")
    rows = values if len(names) > 1 else [[value] for value in values]
    for row in rows:
        if not isinstance(row, list) or len(row) != len(names):
            raise InputError(f"{SWEEP}.{key}", row, f"a list of {len(names)} values, one for each name")
    columns = [_labels(name, [row[i] for row in rows]) for i, name in enumerate(names)]
    labels = [",".join(parts) for parts in zip(*columns, strict=True)]
    return [(label, dict(zip(names, row, strict=True))) for label, row in zip(labels, rows, strict=True)]


def _labels(key: str, values: Sequence[Any]) -> list[str]:
    """Short names for the values of one setting, fit for a folder."""
    tables = [value if isinstance(value, Mapping) else {"name": value} for value in values]
    names = [str(table.get("name", "")) for table in tables]
    plain = all(isinstance(value, str | Mapping) for value in values)
    last = key.rpartition(".")[2]
    labels = []
    for table, name in zip(tables, names, strict=True):
        fields = [f"{field}={value}" for field, value in table.items() if field != "name"]
        label = name if plain else f"{last}={name}"
        # The name is enough where it tells the values apart.
        labels.append(label if names.count(name) == 1 else "-".join([label, *fields]))
    return [re.sub(r"[^A-Za-z0-9._=+-]+", "-", label)[:80] or "default" for label in labels]


def run_all(
    runs: Sequence[Planned],
    pool: Pool,
    *,
    keep: bool = False,
    tensorboard: bool = False,
    on_look: Callable[[Mapping[str, Standing]], None] | None = None,
) -> dict[str, Standing]:
    """Runs what is not over yet, and returns how all of them stand.

    Args:
      runs: what `expand` gave.
      pool: who does the work.
      keep: keep the checkpoints of finished runs.
      tensorboard: write TensorBoard's files too.
      on_look: told every half second how the runs stand.
    """
    stands = standings(runs)
    by_name = {run.name: run for run in runs}
    waiting = deque(run.name for run in runs if stands[run.name].state not in OVER)
    running: dict[Future[Standing], str] = {}
    begun: Counter[str] = Counter()
    with pool, stop_requests() as request:
        while running or (waiting and not request.asked):
            while waiting and len(running) < pool.width and not request.asked:
                name = waiting.popleft()
                begun[name] += 1
                run = by_name[name]
                how = (pool.shared, keep, tensorboard, Path.cwd())
                running[pool.submit(execute_quietly, run.table, run.folder, *how)] = name
            ended = wait(running, timeout=_LOOK_EVERY, return_when=FIRST_COMPLETED).done
            for future in ended:
                name = running.pop(future)
                error = future.exception()
                if not error:
                    stands[name] = future.result()
                elif request.asked:
                    stands[name] = standing(by_name[name].folder)
                elif begun[name] < _ATTEMPTS:
                    waiting.append(name)  # the worker is gone, not the run: what it had is in its folder
                else:
                    reason = f"its worker died, {begun[name]} times now ({type(error).__name__}: {error})"
                    stands[name] = replace(standing(by_name[name].folder), state="failed", reason=reason)
            if request.asked:
                pool.ask_to_stop()
            if on_look:
                on_look(stands | {name: standing(by_name[name].folder) for name in running.values()})
    return stands


def standings(runs: Sequence[Planned]) -> dict[str, Standing]:
    """How all of them stand in their folders; an InputError if one of these has other settings."""
    return {run.name: _before(run) for run in runs}


def _before(run: Planned) -> Standing:
    """How a run stands before the sweep; a folder with other settings is refused, not skipped."""
    if (run.folder / CONFIG).exists():
        recorded = read_toml(run.folder / CONFIG)
        refuse_difference(recorded, Config.of(run.table).table(recorded["schedule"]["n"]), run.folder)
    return replace(standing(run.folder), reason="")


def refuse_another(table: Mapping[str, Any], folder: Path) -> None:
    """A sweep may grow in its folder, but no other moves in: figures would show both."""
    if not (folder / SWEEP_FILE).exists():
        return
    one, other = (
        {key: value for key, value in each.items() if key not in (*HOW, SWEEP)}
        for each in (read_toml(folder / SWEEP_FILE), table)
    )
    for key in [*other, *one]:
        if one.get(key) != other.get(key):
            accepted = f"the sweep in {folder} has {short(one.get(key))}; go on with that, or take another folder"
            raise InputError(key, other.get(key), accepted)


def not_begun(folder: Path) -> list[str]:
    """The runs of a sweep's folder that have none of their own yet."""
    if not (folder / SWEEP_FILE).exists():
        return []
    # Checked when they were planned; to do it again might fetch the data of those that are over.
    runs = _expanded(read_toml(folder / SWEEP_FILE), folder)
    return [run.name for run in runs if not (run.folder / CONFIG).exists()]
