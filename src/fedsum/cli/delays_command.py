"""fedsum delays PATTERN|FILE"""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track
from rich.table import Table

from .. import theory
from ..base.checks import InputError, integer, nearest
from ..base.checks import seed as check_seed
from ..base.registry import build, registered
from ..participation import SCHEDULES, Schedule, Trace
from .console import PROGRESS_OPTIONS, Json, err, out, print_json, print_path

_TRACES = (".csv", ".parquet", ".pq")
# Fields of the patterns by default: the paper's setting, and a Markov chain with the same mean participation.
_DEFAULTS = {"n": 100, "size": 20, "p": 0.2, "on": 0.9, "off": 0.975, "groups": 5, "dwell": 10}


def delays(
    pattern: Annotated[
        str,
        typer.Argument(metavar="PATTERN|FILE", help=f"{', '.join(SCHEDULES).lower()}, or a .csv/.parquet trace."),
    ],
    rounds: Annotated[int | None, typer.Option(help="T, rounds; default 2000, or all rounds of a trace.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the schedule.")] = 0,
    n: Annotated[int | None, typer.Option("--n", help="N, clients (100).")] = None,
    size: Annotated[int | None, typer.Option(help="S, active clients per round (20).")] = None,
    p: Annotated[float | None, typer.Option("--p", help="independent: probability (0.2).")] = None,
    on: Annotated[float | None, typer.Option(help="markov: probability to stay active (0.9).")] = None,
    off: Annotated[float | None, typer.Option(help="markov: probability to stay inactive (0.975).")] = None,
    start: Annotated[float | None, typer.Option(help="biased: first group's probability (0.5).")] = None,
    drop: Annotated[float | None, typer.Option(help="biased: decrease per group (0.05).")] = None,
    group: Annotated[int | None, typer.Option(help="biased: clients per group (11).")] = None,
    floor: Annotated[float | None, typer.Option(help="biased: smallest probability (0.05).")] = None,
    groups: Annotated[int | None, typer.Option(help="periodic: groups of clients (5).")] = None,
    dwell: Annotated[int | None, typer.Option(help="periodic: rounds per turn of a group (10).")] = None,
    round_length: Annotated[float | None, typer.Option(help="Trace with times: length of a round.")] = None,
    local_steps: Annotated[int, typer.Option("--K", help="K, local steps, for the rates.")] = 10,
    smoothness: Annotated[float, typer.Option("--L", help="L, smoothness, for the rates.")] = 1.0,
    sigma: Annotated[float, typer.Option(help="Gradient noise, for the rates.")] = 0.0,
    delta_f: Annotated[float, typer.Option("--delta-f", help="f(x0) - f*, for the rates.")] = 1.0,
    picture: Annotated[Path, typer.Option("--out", help="Image file to write.")] = Path("fedsum-delays.png"),
    as_json: Json = False,
) -> None:
    """Measure a participation pattern: active clients, delays, the lemmas' bounds and Theorem 1's learning rates."""
    from ..figures import check_path, participation_figure, save
    from ..report import measure, schedule_summary

    check_path(picture)

    fields = {"n": n, "size": size, "p": p, "on": on, "off": off}
    fields |= {"start": start, "drop": drop, "group": group, "floor": floor, "groups": groups, "dwell": dwell}
    arguments = {name: value for name, value in fields.items() if value is not None}
    schedule, title = _schedule(pattern, arguments, round_length)
    T = integer("rounds", getattr(schedule, "rounds", 2000) if rounds is None else rounds, low=1)
    check_seed(seed)
    constants: dict[str, Any] = {"K": local_steps, "L": smoothness, "sigma": sigma, "Delta_f": delta_f}
    theory.learning_rates(**constants, N=schedule.n, T=T, tau_max=0, tau_avg=0)  # refused before the measurement
    measured = measure(schedule, track(range(T), description=title, console=err, **PROGRESS_OPTIONS), seed)
    measures = schedule_summary(measured, **constants)
    raster_figure = participation_figure(
        measured.raster,
        measured.delays.gaps,
        measured.delays.tau,
        tau_max_bound=measured.tau_max_bound,
        title=f"{title}, {T} rounds",
    )
    path = save(raster_figure, picture)
    if as_json:
        print_json({"schedule": title, **measures, "picture": str(path)})
        return
    d = measured.delays
    least_active, most_active = int(d.counts.argmin()), int(d.counts.argmax())
    names = schedule.names if isinstance(schedule, Trace) else [str(i) for i in range(schedule.n)]
    table = Table(title=f"{title}, {T} rounds", show_header=False)
    table.add_row("clients N", f"{schedule.n:,}")
    table.add_row(
        "active per round",
        f"{measures['active_mean']:.1f} ({measures['active_min']} to {measures['active_max']}),"
        f" {measures['empty_rounds']} rounds empty",
    )
    table.add_row("most active", f"client {names[most_active]}, {d.counts[most_active]} rounds")
    least = f"client {names[least_active]}, {d.counts[least_active]} rounds; {measures['never_seen']} never active"
    table.add_row("least active", least)
    table.add_row("longest absence", f"client {names[int(d.gaps.argmax())]}, {d.gaps.max()} rounds")
    table.add_row("tau_max, measured", f"{d.max}")
    lemma, case = measures["tau_max_bound"], measures["case"]
    table.add_row(
        "tau_max, lemma",
        f"at most {lemma:.4g} expected (Case {case})" if lemma else "- (no lemma for this pattern)",
    )
    table.add_row("tau_avg, measured", f"{d.avg:.4g}")
    table.add_row(
        "Theorem 1's rates",
        f"eta_l = {measures['eta_l']:.4g}, eta_g = {measures['eta_g']:.4g}"
        f" (K = {local_steps}, L = {smoothness:g}, sigma = {sigma:g}, Delta_f = {delta_f:g})",
    )
    out.print(table)
    print_path("picture", path)


def _schedule(pattern: str, arguments: dict[str, Any], round_length: float | None) -> tuple[Schedule, str]:
    """The schedule of the command line, and its title."""
    if Path(pattern).suffix.lower() in _TRACES:
        for name in arguments:
            if name != "n":
                raise InputError(name, arguments[name], "not for a trace, which takes only n and round-length")
        return Trace.read(pattern, round_length=round_length, clients=arguments.get("n")), pattern
    if round_length is not None:
        raise InputError("round-length", round_length, "only for a trace file with times")
    registered_name = registered(SCHEDULES, pattern)
    if registered_name is None:
        hint = nearest(pattern.lower(), [name.lower() for name in SCHEDULES])
        raise InputError("pattern", pattern, f"{hint}, or a trace ending in {', '.join(_TRACES)}")
    cls: Any = SCHEDULES[registered_name]
    field_names = [field.name for field in dataclasses.fields(cls) if field.init]
    schedule = build(
        "pattern", SCHEDULES, pattern, {k: v for k, v in _DEFAULTS.items() if k in field_names} | arguments
    )
    return schedule, repr(schedule)
