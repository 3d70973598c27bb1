"""The round loop: schedule -> gather -> plan -> engine -> report -> merge -> scatter -> evaluate."""

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from .algorithms import Algorithm, Round, Traffic, count
from .base.checks import InputError
from .engine import Engine, StateBank, arithmetic, bound_task, choose_engine, evaluation
from .participation import DelayMeter, Ids, Schedule
from .participation.schedule import as_ids
from .runs.checkpoint import RunState
from .runs.config import described
from .runs.recorder import Recorder, recorder
from .tasks import BaseTask, Quadratic
from .theory import learning_rates
from .training.history import History
from .training.options import Options


@dataclass(frozen=True)
class RoundDone:
    """What `on_round` is told after every round."""

    round: int
    """rounds done"""
    active: Ids
    tau: int
    metrics: dict[str, float] | None
    """this round's evaluation, if there was one"""


def simulate(
    task: BaseTask,
    algorithm: Algorithm,
    schedule: Schedule,
    *,
    rounds: int,
    local_steps: int,
    eta_l: float | Callable[[int], float],
    eta_g: float = 1.0,
    batch_size: int = 128,
    seed: int = 0,
    eval_every: int = 10,
    eval_last: int = 0,
    eval_model: Literal["server", "clients"] | None = None,
    engine: str = "auto",
    device: str | torch.device = "auto",
    dtype: torch.dtype = torch.float32,
    precision: Literal["fp32", "tf32"] = "fp32",
    deterministic: bool = False,
    folder: str | Path | None = None,
    checkpoint_rounds: int | None = None,
    checkpoint_seconds: float = 60.0,
    on_round: Callable[[RoundDone], None] | None = None,
) -> History:
    """Trains `task` with `algorithm` for `rounds` rounds of the participation `schedule`.

    Args:
      task: what is trained, `fedsum.tasks`.
      algorithm: `FedSUM()`, or another, or your own.
      schedule: who takes part when; for as many clients as the task has.
      rounds: T.
      local_steps: K.
      eta_l: local learning rate, a number or a function of the round.
      eta_g: global learning rate.
      batch_size: samples a gradient.
      seed: of initial weights, schedule and batches.
      eval_every: evaluate after every so many rounds, besides before the first and after the last.
      eval_last: evaluate each of the last so many rounds too.
      eval_model: "server", or "clients" for the mean of all N clients' models (the server's is then logged
        beside it); default: as the algorithm's authors do.
      engine: "loop" (one client after the other), "batched" (stacked), "workers" (CPU processes), or "auto":
        batched on CUDA, the loop on a CPU, handed over to workers if much work is left. All give the same result.
      device: "auto", "cpu", "cuda" or a torch device.
      dtype: of all vectors.
      precision: on CUDA, "fp32" (exact) or "tf32" (factors rounded to 10 bits, faster).
      deterministic: on CUDA, the same bits for the same seed, at some cost; a CPU gives them anyway.
      folder: where to keep the run: its config, metrics, log, checkpoints and final model. A folder that holds
        a run already goes on with it, if its config is the same.
      checkpoint_rounds: a checkpoint every so many rounds.
      checkpoint_seconds: a checkpoint every so many seconds; Ctrl-C waits for the round's end and writes one too.
      on_round: called after every round.
    """
    options = Options(
        rounds=rounds,
        local_steps=local_steps,
        eta_l=eta_l,
        eta_g=eta_g,
        batch_size=batch_size,
        seed=seed,
        eval_every=eval_every,
        eval_last=eval_last,
        eval_model=eval_model,
        dtype=dtype,
        precision=precision,
        deterministic=deterministic,
        engine=engine,
        device=device,
        checkpoint_rounds=checkpoint_rounds,
        checkpoint_seconds=checkpoint_seconds,
    )
    if schedule.n != task.n:
        raise InputError("schedule.n", schedule.n, f"the task has {task.n} clients")
    where = options.torch_device()
    with (
        recorder(folder, lambda: described(task, algorithm, schedule, options), options, where) as record,
        arithmetic(where, precision, deterministic),
    ):
        return _train(bound_task(task, where, dtype), algorithm, schedule, options, record, on_round)


def _train(
    task: BaseTask,
    algorithm: Algorithm,
    schedule: Schedule,
    options: Options,
    record: Recorder | None,
    on_round: Callable[[RoundDone], None] | None,
) -> History:
    x0 = task.init(options.seed)
    state = RunState(
        server=algorithm.init_server(x0, options.record(0, task.n)),
        clients=StateBank(algorithm.init_client(x0)),
        memory=StateBank(algorithm.init_row(x0)),
        meter=DelayMeter(task.n),
    )
    judge, judged = evaluation(task), options.eval_model or algorithm.eval_model
    if judged == "clients" and "x" not in state.clients.initial:
        raise InputError("eval_model", judged, f"{algorithm.name}'s clients keep no model; use 'server'")

    def active_in(t: int) -> Ids:
        ids = schedule.active(options.seed, t)
        return as_ids(f"schedule.active(seed={options.seed}, round={t})", ids, task.n)

    def evaluate() -> dict[str, float]:
        started = time.perf_counter()
        row: dict[str, float] = {"round": state.done}
        if judged == "clients":
            row |= judge(state.clients.mean("x", task.n))
            row |= {f"server_{name}": value for name, value in judge(state.server["x"]).items()}
        else:
            row |= judge(state.server["x"])
        state.judging += time.perf_counter() - started
        row |= {"communication": state.sent.vectors, "bytes": state.sent.bytes}
        row |= {"tau": state.meter.tau[-1] if state.done else 0}
        row |= {"seconds": state.training, "eval_seconds": state.judging}
        # Plain numbers, whatever the task measures in: they are written to files.
        row = {name: value if isinstance(value, int) else float(value) for name, value in row.items()}
        state.rows.append(row)
        if record:
            record.evaluated(row)
        return row

    if record:
        record.restore(state)
    diverged = None
    engine = choose_engine(
        options.engine,
        task,
        x0.device,
        seed=options.seed,
        K=options.local_steps,
        batch_size=options.batch_size,
        rounds=options.rounds,
    )
    with closing(engine) as work:
        if not state.rows:
            evaluate()
        upcoming = active_in(state.done) if state.done < options.rounds else None
        clock = _Clock(state, x0.device)
        while upcoming is not None:
            active, now = upcoming, options.record(state.done, task.n)
            upcoming = active_in(now.t + 1) if now.t + 1 < options.rounds else None
            traffic = play_round(algorithm, state, active, upcoming, now, work)
            state.sent += traffic
            tau, row = state.meter.update(active), None
            with clock.halted(exactly=options.evaluates(state.done)):
                if options.evaluates(state.done):
                    row = evaluate()
                if on_round:
                    on_round(RoundDone(state.done, active, tau, row))
                if row and not (math.isfinite(row["train_loss"]) and state.server["x"].isfinite().all()):
                    diverged = state.done
                    break
                if record and record.due(state.done):
                    record.save(state)
    if diverged is not None:
        reason = f"{algorithm.name} diverged by round {diverged}, and stopped: {_remedy(task, options, state)}"
        warnings.warn(reason, stacklevel=3)
        if record:
            record.diverged(state, reason)
    elif record:
        record.finished(state, task.model(state.server["x"]))
    delays = state.meter.result()
    return History(task, algorithm.name, state.rows, state.server, state.clients, state.memory, delays, diverged)


class _Clock:
    """Training time: what evaluations, callers and checkpoints take is not part of it."""

    def __init__(self, state: RunState, device: torch.device) -> None:
        self._state, self._device = state, device
        self._since = time.perf_counter()

    @contextmanager
    def halted(self, exactly: bool) -> Iterator[None]:
        if exactly and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # or the evaluation would be charged with the rounds before it
        self._state.training += time.perf_counter() - self._since
        try:
            yield
        finally:
            self._since = time.perf_counter()


def _remedy(task: BaseTask, options: Options, state: RunState) -> str:
    """What Theorem 1 says for the delays that were measured; L only where the task knows it."""
    delays = state.meter.result()
    constants: dict[str, float] = (
        task.constants() if isinstance(task, Quadratic) else {"L": 1.0, "sigma": 0, "Delta_f": 1}
    )
    known = {name: constants[name] for name in ("L", "sigma", "Delta_f")}
    safe = learning_rates(
        **known, N=task.n, K=options.local_steps, T=options.rounds, tau_max=delays.max, tau_avg=delays.avg
    )
    over_L = "" if isinstance(task, Quadratic) else "/L (L: smoothness of the loss)"
    return (
        f"try a smaller eta_l; for the delays so far, tau_max = {delays.max}, theory's rates are"
        f" eta_l = {safe.eta_l:.3g}{over_L} and eta_g = {safe.eta_g:.3g}"
    )


def play_round(
    algorithm: Algorithm,
    state: RunState,
    active: Ids,
    upcoming: Ids | None,
    now: Round,
    work: Engine,
) -> Traffic:
    """One round with the cohort stacked: updates the server and the banks, and returns what was sent.

    `upcoming` are the next round's clients, whose states may be fetched while the device works on this one's.
    """
    clients, memory = state.clients, state.memory
    client, row = clients.gather(active), memory.gather(active)
    down = algorithm.downlink(state.server, now)
    plan = algorithm.plan(client, down, now)
    G: Tensor = work(plan, active, now.t)
    if upcoming is not None:
        clients.expect(upcoming)
        memory.expect(upcoming)
    uplink, client = algorithm.report(client, down, plan, G, now)
    contribution, row = algorithm.digest(row, uplink, now)
    total = {name: value.sum(0) for name, value in contribution.items()}
    state.server = algorithm.merge(state.server, total, len(active), now)
    farewell = algorithm.farewell(state.server, now)
    client = algorithm.receive(client, farewell, now)
    clients.scatter(active, client)
    memory.scatter(active, row)
    return (count(down) + count(farewell)) * len(active) + count(uplink, stacked=True)
