"""fedsum delays PATTERN"""

from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress, track
from rich.table import Table

from .. import theory
from ..base.checks import InputError, integer, real
from ..base.checks import seed as check_seed
from ..participation import SCHEDULES, Devices, Sampled, fit
from ..runs import first_settings
from ..spec import TaskSpec, imported, parse_task, read_settings
from ..tasks import BaseTask, Curvature, curvature
from ..training import mean_steps, step_counts
from .arguments import Cover, Offset
from .console import PROGRESS_OPTIONS, Json, err, note_replaced, out, print_json, print_path
from .fit_table import fits_as_json, print_fits
from .schedule_argument import schedule_argument

_BATCH_SIZE, _LOCAL_STEPS = 128, 10
_CHECKED_ROUNDS, _CHECKED_CLIENTS = 2000, 100_000
"""rounds in which the stability of the advised rates is checked, and the most clients for which it is"""


def delays(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN",
            help=f"{', '.join(SCHEDULES).lower()}, file.py:Class, a trace (a .csv, .jsonl or .parquet file), or a "
            "settings file with a schedule (.toml; of a sweep, its first run).",
        ),
    ],
    rounds: Annotated[
        int | None, typer.Option(help="T, rounds; default: those of the settings file, all of a trace, or 2000.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the schedule.")] = 0,
    n: Annotated[int | None, typer.Option("--n", help="N, clients (100); for a trace, including absent ones.")] = None,
    size: Annotated[
        int | None,
        typer.Option(help="S, active clients per round (20); for a trace, the largest number per round (all)."),
    ] = None,
    p: Annotated[float | None, typer.Option("--p", help="independent: probability (0.2).")] = None,
    on: Annotated[float | None, typer.Option(help="markov: probability to stay active (0.9).")] = None,
    off: Annotated[float | None, typer.Option(help="markov: probability to stay inactive (0.975).")] = None,
    start: Annotated[float | None, typer.Option(help="biased: first group's probability (0.5).")] = None,
    drop: Annotated[float | None, typer.Option(help="biased: decrease per group (0.05).")] = None,
    group: Annotated[int | None, typer.Option(help="biased: clients per group (11).")] = None,
    floor: Annotated[float | None, typer.Option(help="biased: smallest probability (0.05).")] = None,
    groups: Annotated[int | None, typer.Option(help="periodic: groups of clients (5).")] = None,
    dwell: Annotated[int | None, typer.Option(help="periodic: rounds per turn of a group (10).")] = None,
    separation: Annotated[
        int | None, typer.Option(help="spaced: fewest rounds from one active round of a client to its next (4).")
    ] = None,
    peak: Annotated[float | None, typer.Option(help="diurnal: highest probability (0.35).")] = None,
    trough: Annotated[float | None, typer.Option(help="diurnal: lowest probability (0.05).")] = None,
    period: Annotated[float | None, typer.Option(help="diurnal: rounds per day (48).")] = None,
    zones: Annotated[int | None, typer.Option(help="diurnal: time zones (1).")] = None,
    devices: Annotated[
        Path | None,
        typer.Option(help="asynchronous: a file of devices (1 to 10 seconds per step, log-uniform)."),
    ] = None,
    buffer: Annotated[int | None, typer.Option(help="asynchronous: updates per server step (10).")] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="asynchronous: clients that train at the same time (all).")
    ] = None,
    jitter: Annotated[
        float | None,
        typer.Option(help="asynchronous: standard deviation of the logarithm of a random factor on times (0)."),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(help="Trace with --size: draw clients ('uniform'), or take the longest absent first ('oldest')."),
    ] = None,
    round_length: Annotated[
        float | None, typer.Option(help="Trace of times or intervals: length of a round, in their unit.")
    ] = None,
    client_column: Annotated[str | None, typer.Option(help="Trace: name of the column of clients.")] = None,
    time_column: Annotated[str | None, typer.Option(help="Trace: name of the column of times.")] = None,
    offset: Offset = None,
    cover: Cover = None,
    start_column: Annotated[str | None, typer.Option(help="Intervals: name of the column of starts.")] = None,
    end_column: Annotated[str | None, typer.Option(help="Intervals: name of the column of ends.")] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="Estimate L for this task: a name such as digits, file.py:function, or a settings file (.toml; of a "
            "sweep, its first run), of which the schedule and the algorithm are not read."
        ),
    ] = None,
    local_steps: Annotated[
        int | None, typer.Option("--K", help="K, local steps, for the rates (10, or that of the settings file).")
    ] = None,
    smoothness: Annotated[float | None, typer.Option("--L", help="L, smoothness, for the rates (1).")] = None,
    sigma: Annotated[float, typer.Option(help="Gradient noise, for Theorem 1's rates.")] = 0.0,
    delta_f: Annotated[float, typer.Option("--delta-f", help="f(x0) - f*, for Theorem 1's rates.")] = 1.0,
    fit_generator: Annotated[
        bool,
        typer.Option(
            "--fit", help="Fit the schedules Markov and Diurnal to a log, to simulate more rounds than recorded."
        ),
    ] = False,
    picture: Annotated[Path, typer.Option("--out", help="Image file to write.")] = Path("fedsum-delays.png"),
    as_json: Json = False,
) -> None:
    """Measure a participation pattern: active clients, delays, the lemmas' bounds and learning rates.

    Theorem 1's rates hold for the worst case and are far too small for most tasks. The advised rates are half of the
    stability limits for the measured participation. With --task or --L they are numbers, otherwise multiples of 1/L.

    Numbers in parentheses are defaults.
    """
    from ..figures import Participation, check_path, participation_figure, save
    from ..report import measure, rate_advice, schedule_summary

    check_path(picture)
    fields: dict[str, Any] = {"n": n, "size": size, "p": p, "on": on, "off": off}
    fields |= {"start": start, "drop": drop, "group": group, "floor": floor, "groups": groups, "dwell": dwell}
    fields |= {"separation": separation, "peak": peak, "trough": trough, "period": period, "zones": zones}
    fields |= {"buffer": buffer, "concurrency": concurrency, "jitter": jitter}
    fields |= {"devices": None if devices is None else Devices.read(devices)}
    fields |= {"order": order, "round_length": round_length, "client_column": client_column, "time_column": time_column}
    fields |= {"offset": offset, "cover": cover, "start_column": start_column, "end_column": end_column}
    argument = schedule_argument(pattern, fields)
    schedule, title = argument.schedule, argument.title
    recorded = schedule.availability if isinstance(schedule, Sampled) else schedule
    default = argument.rounds or getattr(recorded, "rounds", 2000)
    T = integer("rounds", default if rounds is None else rounds, low=1)
    check_seed(seed)
    task_K, L = _curvature(task, schedule.n, smoothness, argument.local_steps or _LOCAL_STEPS)
    K = integer("K", task_K if local_steps is None else local_steps, low=1)
    constants: dict[str, Any] = {"K": K, "L": L.client, "sigma": sigma, "Delta_f": delta_f}
    theory.learning_rates(**constants, N=schedule.n, T=T, tau_max=0, tau_avg=0)  # refused before the measurement
    fits = fit(schedule, T, seed) if fit_generator else []  # refused before the measurement
    measured = measure(schedule, track(range(T), description=title, console=err, **PROGRESS_OPTIONS), seed)
    measures = schedule_summary(measured, **constants)
    sets = [schedule.active(seed, t) for t in range(min(T, _CHECKED_ROUNDS))] if schedule.n <= _CHECKED_CLIENTS else []
    # Theory and stability limits are for gradients of the current model.
    synchronous = not hasattr(schedule, "dispatch")
    if not synchronous:
        measures |= dict.fromkeys(("eta_l", "eta_g", "best_eta_l", "largest_eta_l"))
    advised = synchronous and measured.ages.any()
    advice = rate_advice(measured.ages, K=K, L=L, sets=sets, n=schedule.n) if advised else {}
    fitted = None
    if fits:  # the nearest one
        generated = measure(fits[0].generator, range(T), seed)
        shown = Participation(generated.raster, generated.delays.gaps, generated.delays.tau)
        fitted = type(fits[0].generator).__name__, shown
    raster_figure = participation_figure(
        Participation(measured.raster, measured.delays.gaps, measured.delays.tau),
        fitted=fitted,
        tau_max_bound=measured.tau_max_bound,
        title=f"{title}, {T} rounds",
        names=argument.names,
    )
    note_replaced(picture)
    path = save(raster_figure, picture)
    if as_json:
        estimate = {"K": K, "L": L.client, "L_mean_loss": L.mean_loss, "advice": advice}
        print_json({"schedule": title, **measures, **estimate, **fits_as_json(fits), "picture": str(path)})
        return
    d = measured.delays
    least_active, most_active = int(d.counts.argmin()), int(d.counts.argmax())
    names = argument.names or range(schedule.n)
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
    if synchronous:
        table.add_row(
            "Theorem 1's rates\n(worst case)",
            f"eta_l = {measures['eta_l']:.4g}, eta_g = {measures['eta_g']:.4g}"
            f" (K = {K}, L = {L.client:.3g}, sigma = {sigma:g}, Delta_f = {delta_f:g})",
        )
        table.add_row(
            "descent lemma's rates\n(worst case)",
            f"eta_l = {measures['best_eta_l']:.4g} at eta_g = 1 for FedSUM's best bound,"
            f" and at most {measures['largest_eta_l']:.4g}",
        )
    out.print(table)
    if advice:
        _print_advice(advice, K, L, estimated=task is not None, given=smoothness is not None)
    if fits:
        print_fits(fits, measures, T, seed)
    print_path("picture", path)


def _curvature(task: str | None, n: int, smoothness: float | None, K: int) -> tuple[int, Curvature]:
    """K and L of the task that --task names. Without it, `K`, and the L that was given, or 1."""
    if task is None:
        L = 1.0 if smoothness is None else real("L", smoothness, above=0)
        return K, Curvature(L, L)
    if task.endswith(".toml"):
        # Only the task and the options: the file's schedule may not fit, and a sweep has no algorithm of its own.
        spec, options = parse_task(first_settings(read_settings(Path(task))))
        made = spec.make()
        K = round(mean_steps(step_counts(made, options)))
        seed, batch_size = options.seed, options.batch_size
    else:
        made, seed, batch_size = _task_of_clients(task, n), 0, _BATCH_SIZE
    with Progress(console=err, **PROGRESS_OPTIONS) as progress:
        bar = progress.add_task("estimating the curvature of the loss", total=1.0)
        L_task = curvature(
            made,
            seed=seed,
            batch_size=batch_size,
            on_progress=lambda share: progress.update(bar, completed=share),
        )
    if smoothness is not None:
        L = real("L", smoothness, above=0)
        return K, Curvature(L, L_task.mean_loss or L)
    if not L_task.client > 0:
        reason = "the curvature of its loss at the initial model is 0, as with unscaled inputs"
        raise InputError("task", task, f"{reason}: scale them, or give --L")
    return K, L_task


def _task_of_clients(name: str, n: int) -> BaseTask:
    """A task by name, with the schedule's number of clients; a user's function gets it if it takes `clients`."""
    if ":" in name:
        takes_clients = "clients" in signature(imported("task", name)).parameters
        fields = {"clients": n} if takes_clients else {}
    else:
        fields = {"n": n, "d": 10} if name.lower() == "quadratic" else {"clients": n}
    try:
        return TaskSpec.parse({"name": name, **fields}).make()
    except InputError as error:
        if error.field.rpartition(".")[2] not in fields:
            raise
        raise InputError(error.field, error.value, f"{error.accepted}; the schedule has {n} clients") from error


def _print_advice(advice: dict[str, dict[str, float]], K: int, L: Curvature, *, estimated: bool, given: bool) -> None:
    """The advised rates. Algorithms with the same rate share a row."""
    unit = "" if estimated or given else "/L"
    rows: dict[tuple[float, float], list[str]] = {}
    for label, rates in advice.items():
        rows.setdefault((rates["eta_l"], rates["limit"]), []).append(label)
    table = Table(title=f"Rates to start with, eta_g = 1, K = {K}")
    if estimated:
        table.caption = (
            f"L = {L.client:.3g} of a client's loss, {L.mean_loss:.3g} of the mean loss, at the initial model"
        )
    else:
        table.caption = "L: curvature of the loss; --task NAME or --task FILE.toml estimates it"
    for head in ("algorithm", "eta_l", "stable up to"):
        table.add_column(head, justify="left" if head == "algorithm" else "right")
    for (eta_l, limit), labels in rows.items():
        table.add_row(", ".join(labels), f"{eta_l:.3g}{unit}", f"{limit:.3g}{unit}")
    out.print(table)
