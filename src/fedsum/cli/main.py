"""The command line: parse, call, print."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn, track
from rich.table import Table

from .. import theory
from ..algorithms import ALGORITHMS, card
from ..base.checks import InputError, integer, nearest
from ..base.checks import seed as check_seed
from ..base.metrics import LABELS
from ..base.registry import build
from ..experiments import commands as experiments
from ..experiments.demo import DEMOS
from ..participation import SCHEDULES, Schedule, Trace
from ..runs import commands as runs
from ..simulate import RoundDone
from .console import QUIET, Json, err, figure, out, print_path
from .flower_certs_command import flower_certs
from .flower_init_command import flower_init

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
runs.add_to(app)
experiments.add_to(app)
flower = typer.Typer(no_args_is_help=True, help="Deploy on Flower: a complete app, certificates and keys.")
flower.command("init")(flower_init)
flower.command("certs")(flower_certs)
app.add_typer(flower, name="flower")

_INTERRUPTED = 130
_TRACES = (".csv", ".parquet", ".pq")
# What a pattern is given if the command line leaves it out: the paper's setting, and a Markov chain of the
# same average participation.
_DEFAULTS = {"n": 100, "size": 20, "p": 0.2, "on": 0.9, "off": 0.975}


@app.callback()
def fedsum() -> None:
    """Federated learning when clients come and go."""


@app.command()
def demo(
    name: Annotated[str, typer.Argument(metavar="[digits|quadratic]", help="What to train.")] = "digits",
    rounds: Annotated[int | None, typer.Option(help="Rounds of training.")] = None,
    picture: Annotated[Path, typer.Option("--out", help="Where the picture goes.")] = Path("fedsum-demo.png"),
    as_json: Json = False,
) -> None:
    """FedAvg and its rivals on clients that disagree, under biased participation: a table and a picture."""
    from ..report.figures import check_path, curves, save

    if name not in DEMOS:
        raise InputError("demo", name, nearest(name, DEMOS))
    chosen = DEMOS[name]
    T = integer("rounds", chosen.rounds if rounds is None else rounds, low=1)
    check_path(picture)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[seen]}"))
    with Progress(*columns, TimeRemainingColumn(), console=err, **QUIET) as progress:
        bars = {label: progress.add_task(label, total=T, seen="") for label in chosen.algorithms}

        def on_round(label: str, done: RoundDone) -> None:
            progress.advance(bars[label])
            if done.metrics:
                seen = "  ".join(f"{LABELS[c]} {figure(c, done.metrics[c])}" for c in chosen.columns)
                progress.update(bars[label], seen=seen)

        histories = chosen.run(T, on_round)
    path = save(curves({k: h.metrics for k, h in histories.items()}, chosen.columns, chosen.title), picture)
    if as_json:
        out.print_json(json.dumps({"picture": str(path), "runs": {k: h.rows[-1] for k, h in histories.items()}}))
        return
    table = Table(title=chosen.title, caption=f"after {T} rounds")
    table.add_column("algorithm")
    for head in (*(LABELS[c] for c in chosen.columns), LABELS["communication"], "seconds"):
        table.add_column(head, justify="right")
    for label, history in histories.items():
        last = history.rows[-1]
        seen = [figure(column, last[column]) for column in chosen.columns]
        table.add_row(label, *seen, f"{last['communication']:,}", f"{last['seconds']:.1f}")
    out.print(table)
    print_path("picture", path)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Every algorithm: what it sends and what it keeps, as counted from its own messages."""
    cards = [card(cls()) for cls in ALGORITHMS.values()]
    if as_json:
        out.print_json(json.dumps([dataclasses.asdict(c) for c in cards]))
        return
    table = Table(
        title="Algorithms",
        caption="vectors of the model's size; (scalars) in brackets; memory: on the server",
    )
    heads = ("algorithm", "down", "up", "client keeps", "server keeps", "memory per client", "summable")
    for head in heads:
        table.add_column(head)
    for c in cards:
        table.add_row(
            c.name,
            f"{c.vectors_down}: {' '.join(c.down)}",
            f"{c.vectors_up}: {' '.join(c.up)}",
            " ".join(c.client_state) or "-",
            " ".join(c.server_state),
            " ".join(c.server_memory) or "-",
            "yes" if c.summable else "no",
        )
    out.print(table)


@app.command()
def delays(
    pattern: Annotated[
        str,
        typer.Argument(metavar="PATTERN|FILE", help=f"{', '.join(SCHEDULES).lower()}, or a .csv/.parquet trace."),
    ],
    rounds: Annotated[int | None, typer.Option(help="T; default 2000, or all of a trace.")] = None,
    seed: Annotated[int, typer.Option(help="Of the schedule.")] = 0,
    n: Annotated[int | None, typer.Option("--n", help="N, clients (100).")] = None,
    size: Annotated[int | None, typer.Option(help="S, active clients a round (20).")] = None,
    p: Annotated[float | None, typer.Option("--p", help="independent: probability (0.2).")] = None,
    on: Annotated[float | None, typer.Option(help="markov: probability to stay active (0.9).")] = None,
    off: Annotated[float | None, typer.Option(help="markov: probability to stay away (0.975).")] = None,
    start: Annotated[float | None, typer.Option(help="biased: first group's probability (0.5).")] = None,
    drop: Annotated[float | None, typer.Option(help="biased: less for each next group (0.05).")] = None,
    group: Annotated[int | None, typer.Option(help="biased: clients a group (11).")] = None,
    floor: Annotated[float | None, typer.Option(help="biased: least probability (0.05).")] = None,
    round_length: Annotated[float | None, typer.Option(help="Trace with times: length of a round.")] = None,
    local_steps: Annotated[int, typer.Option("--K", help="K, local steps, for the rates.")] = 10,
    smoothness: Annotated[float, typer.Option("--L", help="L, smoothness, for the rates.")] = 1.0,
    sigma: Annotated[float, typer.Option(help="Gradient noise, for the rates.")] = 0.0,
    delta_f: Annotated[float, typer.Option("--delta-f", help="f(x0) - f*, for the rates.")] = 1.0,
    picture: Annotated[Path, typer.Option("--out", help="Where the picture goes.")] = Path("fedsum-delays.png"),
    as_json: Json = False,
) -> None:
    """Who takes part, the delays that follow, the lemmas' bounds and Theorem 1's learning rates."""
    from ..report.figures import check_path, participation, save
    from ..report.patterns import measure, summary

    check_path(picture)

    fields = {"n": n, "size": size, "p": p, "on": on, "off": off}
    fields |= {"start": start, "drop": drop, "group": group, "floor": floor}
    given = {name: value for name, value in fields.items() if value is not None}
    schedule, title = _schedule(pattern, given, round_length)
    T = integer("rounds", getattr(schedule, "rounds", 2000) if rounds is None else rounds, low=1)
    check_seed(seed)
    constants: dict[str, Any] = {"K": local_steps, "L": smoothness, "sigma": sigma, "Delta_f": delta_f}
    theory.learning_rates(**constants, N=schedule.n, T=T, tau_max=0, tau_avg=0)  # refused before, not after, the work
    measured = measure(schedule, track(range(T), description=title, console=err, **QUIET), seed)
    found = summary(measured, **constants)
    path = save(participation(measured, f"{title}, {T} rounds"), picture)
    if as_json:
        out.print_json(json.dumps({"schedule": title, **found, "picture": str(path)}))
        return
    d = measured.delays
    seldom, often = int(d.counts.argmin()), int(d.counts.argmax())
    names = schedule.names if isinstance(schedule, Trace) else [str(i) for i in range(schedule.n)]
    table = Table(title=f"{title}, {T} rounds", show_header=False)
    table.add_row("clients N", f"{schedule.n:,}")
    table.add_row(
        "active a round",
        f"{found['active_mean']:.1f} ({found['active_min']} to {found['active_max']}),"
        f" {found['empty_rounds']} rounds empty",
    )
    table.add_row("most often", f"client {names[often]}, {d.counts[often]} rounds")
    table.add_row("least often", f"client {names[seldom]}, {d.counts[seldom]} rounds; {found['never_seen']} never")
    table.add_row("longest absence", f"client {names[int(d.gaps.argmax())]}, {d.gaps.max()} rounds")
    table.add_row("tau_max, measured", f"{d.max}")
    lemma, case = found["tau_max_bound"], found["case"]
    table.add_row(
        "tau_max, lemma",
        f"at most {lemma:.4g} expected (Case {case})" if lemma else "- (no lemma for this pattern)",
    )
    table.add_row("tau_avg, measured", f"{d.avg:.4g}")
    table.add_row(
        "Theorem 1's rates",
        f"eta_l = {found['eta_l']:.4g}, eta_g = {found['eta_g']:.4g}"
        f" (K = {local_steps}, L = {smoothness:g}, sigma = {sigma:g}, Delta_f = {delta_f:g})",
    )
    out.print(table)
    print_path("picture", path)


def _schedule(pattern: str, given: dict[str, Any], round_length: float | None) -> tuple[Schedule, str]:
    """The schedule that the command line describes, and how to call it."""
    if Path(pattern).suffix.lower() in _TRACES:
        for name in given:
            if name != "n":
                raise InputError(name, given[name], "not for a trace; only n and round-length are")
        return Trace.read(pattern, round_length=round_length, clients=given.get("n")), pattern
    if round_length is not None:
        raise InputError("round-length", round_length, "only for a trace file with times")
    match = next((cls for name, cls in SCHEDULES.items() if name.lower() == pattern.lower()), None)
    if match is None:
        hint = nearest(pattern.lower(), [name.lower() for name in SCHEDULES])
        raise InputError("pattern", pattern, f"{hint}, or a trace ending in {', '.join(_TRACES)}")
    takes = [field.name for field in dataclasses.fields(match) if field.init]  # type: ignore[arg-type]
    schedule = build("pattern", SCHEDULES, pattern, {k: v for k, v in _DEFAULTS.items() if k in takes} | given)
    return schedule, repr(schedule)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A run, or a folder with runs at any depth.")],
    page: Annotated[Path, typer.Option("--out", help="Where the page goes.")] = Path("report.html"),
) -> None:
    """One HTML page on all runs in a folder, to explore in a browser without a network."""
    from ..report.page import page as write

    print_path("report", write(folder, page))


def main() -> None:
    """Entry point: any refusal of input is one line on standard error and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except InputError as error:
        code = _refuse(str(error))
    except click.exceptions.NoArgsIsHelpError:  # the help was printed
        code = 0
    except click.UsageError as error:
        code = _refuse(error.format_message())
    except (OSError, MemoryError, OverflowError) as error:
        code = _refuse(str(error) or type(error).__name__, code=1)
    if code == _INTERRUPTED:
        err.print("stopped")
    sys.exit(code or 0)


def _refuse(reason: str, code: int = 2) -> int:
    line = " ".join(reason.split())
    err.print(f"error: {line}", soft_wrap=True, highlight=False, markup=False)
    return code
