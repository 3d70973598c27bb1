"""run, resume, show, grid: the commands about run folders."""

import json
import math
import time
import warnings
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as Printed

from ..base.checks import InputError, nearest
from ..base.metrics import LABELS
from ..cli.console import Json, err, figure, out, print_path
from ..training.options import Options
from . import config as configs
from .config import SWEEP
from .display import RunDisplay, SweepDisplay
from .execute import execute
from .folder import CONFIG, read_toml, toml_text
from .interrupt import Stopped
from .pools import LocalPool, Pool, RayPool
from .recipes import Table, complete_task
from .search import SEED, best
from .standing import Standing, run_folders, standing
from .sweep import SWEEP_FILE, Planned, expand, not_begun, refuse_another, run_all, standings

_INTERRUPTED, _FAILED = 130, 1

File = Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file: settings, and lists under \\[sweep].")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")]
Folder = Annotated[Path | None, typer.Option("--folder", help="Where the runs go; default runs/NAME-OF-FILE.")]
Jobs = Annotated[int, typer.Option(help="Sweep: runs at a time on this machine.")]
Ray = Annotated[str | None, typer.Option("--ray", metavar="ADDRESS", help="Sweep: on this Ray cluster, or 'auto'.")]
Gpus = Annotated[float, typer.Option(help="Sweep on Ray: GPUs of each run, perhaps a fraction.")]
Keep = Annotated[bool, typer.Option("--keep", help="Sweep: keep the checkpoints of finished runs.")]
Board = Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard's files too.")]


def add_to(app: typer.Typer) -> None:
    for command in (run, resume, show, grid):
        app.command()(command)


def run(
    file: File,
    settings: Set = None,
    folder: Folder = None,
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = 0.0,
    keep: Keep = False,
    tensorboard: Board = False,
    as_json: Json = False,
) -> None:
    """Do the run or the sweep of a file; what is done already is not done again.

    `fedsum run settings` lists every setting.
    """
    if str(file) == "settings" and not file.exists():
        _print_settings()
        return
    table = configs.with_settings(configs.read(file), settings or [])
    do(table, folder or Path("runs") / file.stem, jobs, ray, gpus, keep, tensorboard, as_json)


def resume(
    folder: Annotated[Path, typer.Argument(help="Of a run or a sweep.")],
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = 0.0,
    keep: Keep = False,
    tensorboard: Board = False,
    as_json: Json = False,
) -> None:
    """Go on with a run or a sweep that was stopped, interrupted or failed."""
    for name in (CONFIG, SWEEP_FILE):
        if (folder / name).exists():
            do(read_toml(folder / name), folder, jobs, ray, gpus, keep, tensorboard, as_json)
            return
    raise InputError("folder", str(folder), f"a folder with a {CONFIG} or a {SWEEP_FILE}")


def grid(
    file: File,
    settings: Set = None,
    folder: Folder = None,
    by: Annotated[
        str, typer.Option(help="The metric that decides: its mean over the last 50 rounds and all seeds.")
    ] = "test_accuracy",
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = 0.0,
    as_json: Json = False,
) -> None:
    """Do a sweep, find its best settings, and write them to FOLDER/best.toml.

    Other files take them with include = "FOLDER/best.toml".
    """
    table = configs.with_settings(configs.read(file), settings or [])
    folder = folder or Path("runs") / file.stem
    if not table.get(SWEEP) or list(table[SWEEP]) == [SEED]:
        raise InputError(SWEEP, None, "a grid needs lists of values to choose from under [sweep], other than seeds")
    tasks = [complete_task(run.table["task"])["name"] for run in expand(table, folder)]
    if by not in LABELS and not any(":" in name for name in tasks):  # a task of one's own may measure anything
        raise InputError("by", by, nearest(by, LABELS))
    runs, stands = do(table, folder, jobs, ray, gpus, False, False, as_json)
    chosen = best(runs, stands, by)
    found: Table = {}
    for key, value in chosen.settings.items():
        # A rate's name comes with its number, so that the file means the same wherever it is included.
        above = key.rpartition(".")[0]
        if above and isinstance(chosen.table.get(above), dict):
            found = configs.assigned(found, above, chosen.table[above])
        found = configs.assigned(found, key, value)
    (folder / "best.toml").write_text(toml_text(found))
    if not as_json:
        out.print(f"best: {chosen.name}, {LABELS.get(by, by)} {figure(by, chosen.value)}", highlight=False)
        print_path("settings", folder / "best.toml")


def show(folder: Annotated[Path, typer.Argument(help="Of a run or a sweep.")], as_json: Json = False) -> None:
    """How a run stands, with its settings; or all runs of a sweep in a table."""
    found = run_folders(folder)
    if not found:
        raise InputError("folder", str(folder), f"a run's folder, or one that holds runs; no {CONFIG} is below it")
    stands = {str(path.relative_to(folder)): standing(path) for path in found}
    if as_json:
        shown = {name: asdict(stand) | {"config": read_toml(folder / name / CONFIG)} for name, stand in stands.items()}
        shown |= {name: asdict(Standing()) for name in not_begun(folder)}
        _print_json(shown)
    elif found == [folder]:
        _print_run(folder, stands["."])
    else:
        _print_runs(folder, stands | {name: Standing() for name in not_begun(folder)})


def do(
    table: Table,
    folder: Path,
    jobs: int,
    ray: str | None,
    gpus: float,
    keep: bool,
    tensorboard: bool,
    as_json: bool,
) -> tuple[list[Planned], dict[str, Standing]]:
    """A run in this process, or a sweep in others; prints how it stands."""
    runs = expand(table, folder)
    if not table.get(SWEEP):
        _do_one(runs[0], tensorboard)
        stands = {runs[0].name: standing(folder)}
        if not as_json:
            _print_run(folder, stands[runs[0].name])
    else:
        standings(runs)  # refused before anything is written or started
        refuse_another(table, folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SWEEP_FILE).write_text(toml_text(table))
        pool: Pool = RayPool(ray, gpus) if ray else LocalPool(jobs)
        started = time.monotonic()
        with SweepDisplay(runs) as display:
            stands = run_all(runs, pool, keep=keep, tensorboard=tensorboard, on_look=display)
        if not as_json:
            _print_runs(folder, stands, f", {time.monotonic() - started:.0f} s")
    if as_json:
        _print_json({name: asdict(stand) for name, stand in stands.items()})
    if any(stand.state in ("stopped", "interrupted", "new") for stand in stands.values()):
        err.print(f"go on with: fedsum resume {folder}", soft_wrap=True, highlight=False)
        raise typer.Exit(_INTERRUPTED)
    if any(stand.state == "failed" for stand in stands.values()):
        raise typer.Exit(_FAILED)
    return runs, stands


def _do_one(run: Planned, tensorboard: bool) -> None:
    before = standing(run.folder)
    algorithm = configs.Config.of(run.table).algorithm
    display = RunDisplay(algorithm.name, run.table["rounds"], before.round, before.last)
    with display, suppress(Stopped), warnings.catch_warnings():  # its folder says so, and so will the command
        warnings.simplefilter("ignore", UserWarning)
        execute(run.table, run.folder, on_round=display, tensorboard=tensorboard)


def _print_run(folder: Path, stand: Standing) -> None:
    recorded = read_toml(folder / CONFIG)
    printed = Printed(title=str(folder), show_header=False)
    reason = stand.reason.removeprefix(f"{stand.state} ")
    printed.add_row("state", stand.state + (f": {reason}" if reason else ""))
    printed.add_row("rounds done", f"{stand.round} of {recorded['rounds']}")
    for name, value in stand.last.items():
        if name != "round":
            printed.add_row(LABELS.get(name, name), f"{value:,}" if isinstance(value, int) else f"{value:.6g}")
    printed.add_section()
    for key, value in recorded.items():
        if key != configs.ENVIRONMENT:
            printed.add_row(key, _short(value))
    printed.add_section()
    for key, value in recorded.get(configs.ENVIRONMENT, {}).items():
        printed.add_row(key, str(value))
    out.print(printed)


def _print_runs(folder: Path, stands: dict[str, Standing], took: str = "") -> None:
    over = sum(stand.state == "finished" for stand in stands.values())
    printed = Printed(title=str(folder), caption=f"{over} of {len(stands)} runs finished{took}")
    shown = [name for name in ("train_loss", "test_accuracy", "error") if any(name in s.last for s in stands.values())]
    for head in ("run", "state", "round"):
        printed.add_column(head, overflow="fold")
    for head in (*(LABELS.get(name, name) for name in shown), "seconds"):
        printed.add_column(head, justify="right")
    for name, stand in stands.items():
        cells = [figure(column, stand.last[column]) if column in stand.last else "-" for column in shown]
        seconds = f"{stand.last['seconds']:.1f}" if "seconds" in stand.last else "-"
        printed.add_row(name, stand.state, str(stand.round), *cells, seconds)
    out.print(printed)
    for name, stand in stands.items():
        if stand.reason:
            out.print(f"{name}: {stand.state}: {stand.reason}", soft_wrap=True, highlight=False, markup=False)


def _print_json(shown: dict[str, Any]) -> None:
    """A diverged loss is null: JSON has no NaN."""
    for stand in shown.values():
        stand["last"] = {name: value if math.isfinite(value) else None for name, value in stand["last"].items()}
    out.print_json(json.dumps(shown))


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} = {_short(each)}" for key, each in value.items())
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _print_settings() -> None:
    printed = Printed(title="Settings of a run", caption="task, algorithm and schedule: a name, or a table with one")
    for head in ("setting", "symbol", "default", "what it is"):
        printed.add_column(head)
    for name, doc in _PARTS.items():
        printed.add_row(name, "", "required", doc)
    for field in fields(Options):
        required = field.default is field.default_factory
        default = "required" if required else "" if field.default is None else str(field.default).removeprefix("torch.")
        printed.add_row(field.name, field.metadata["symbol"], default, field.metadata["doc"])
    out.print(printed)


_PARTS = {
    "task": "what is trained: quadratic, digits, mnist, ..., or file.py:function",
    "algorithm": "FedSUM, ... (`fedsum list`), or file.py:class",
    "schedule": "who takes part: Uniform, ..., Trace with a path, or file.py:class; n is the task's",
}
