"""The round loop: schedule -> gather -> plan -> engine -> report -> merge -> scatter -> evaluate."""

import math
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from .algorithms import Algorithm, Round, State, Traffic, count
from .checks import InputError, integer, nearest, real
from .checks import seed as check_seed
from .engine import ENGINES, Engine, StateBank, arithmetic, choose
from .history import History
from .participation import DelayMeter, Ids, Schedule
from .participation.base import as_ids
from .tasks import BaseTask


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
      on_round: called after every round.
    """
    integer("rounds", rounds, low=1)
    integer("local_steps", local_steps, low=1)
    integer("batch_size", batch_size, low=1)
    check_seed(seed)
    integer("eval_every", eval_every, low=1)
    integer("eval_last", eval_last, low=0)
    eta_g = real("eta_g", eta_g, above=0)
    if schedule.n != task.n:
        raise InputError("schedule.n", schedule.n, f"the task has {task.n} clients")
    if eval_model not in (None, "server", "clients"):
        raise InputError("eval_model", eval_model, "'server', 'clients' or None")
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise InputError("dtype", dtype, "torch.float32 or torch.float64")
    if engine not in ENGINES:
        raise InputError("engine", engine, nearest(str(engine), ENGINES))
    if precision not in ("fp32", "tf32"):
        raise InputError("precision", precision, "'fp32' or 'tf32'")

    def record(t: int) -> Round:
        rate = real(f"eta_l({t})", eta_l(t), above=0) if callable(eta_l) else real("eta_l", eta_l, above=0)
        return Round(t=t, N=task.n, K=local_steps, eta_l=rate, eta_g=eta_g)

    def active_in(t: int) -> Ids:
        return as_ids(f"schedule.active(seed={seed}, round={t})", schedule.active(seed, t), task.n)

    where = _device(device)
    task = _bound(task, where, dtype)
    x0 = task.init(seed)
    server = algorithm.init_server(x0, record(0))
    clients, memory = StateBank(algorithm.init_client(x0)), StateBank(algorithm.init_row(x0))
    meter, sent = DelayMeter(task.n), Traffic()
    eval_model = eval_model or algorithm.eval_model
    if eval_model == "clients" and "x" not in clients.initial:
        raise InputError("eval_model", eval_model, f"{algorithm.name}'s clients keep no model; use 'server'")
    training = judging = 0.0

    def evaluate(done: int) -> dict[str, float]:
        nonlocal judging
        started = time.perf_counter()
        row: dict[str, float] = {"round": done}
        if eval_model == "clients":
            row |= task.evaluate(clients.mean("x", task.n))
            row |= {f"server_{name}": value for name, value in task.evaluate(server["x"]).items()}
        else:
            row |= task.evaluate(server["x"])
        judging += time.perf_counter() - started
        row |= {"communication": sent.vectors, "bytes": sent.bytes}
        row |= {"tau": meter.tau[-1] if done else 0, "seconds": training, "eval_seconds": judging}
        return row

    with (
        arithmetic(where, precision, deterministic),
        closing(choose(engine, task, where, seed=seed, K=local_steps, batch_size=batch_size, rounds=rounds)) as work,
    ):
        rows = [evaluate(0)]
        upcoming, diverged = active_in(0), None
        started = time.perf_counter()
        for t in range(rounds):
            active, upcoming = upcoming, active_in(t + 1) if t + 1 < rounds else upcoming[:0]
            server, traffic = play_round(algorithm, server, clients, memory, active, upcoming, record(t), work)
            sent += traffic
            tau, done = meter.update(active), t + 1
            due = done % eval_every == 0 or done == rounds or done > rounds - eval_last
            if due:
                if where.type == "cuda":
                    torch.cuda.synchronize(where)  # or the evaluation would be charged with the rounds before it
                training += time.perf_counter() - started
                rows.append(evaluate(done))
                started = time.perf_counter()
            if on_round:
                called = time.perf_counter()
                on_round(RoundDone(done, active, tau, rows[-1] if due else None))
                started += time.perf_counter() - called  # the caller's time is not training
            if due and not math.isfinite(rows[-1]["train_loss"]):
                diverged = done
                remedy = "try a smaller eta_l; fedsum.theory.learning_rates says which is safe"
                warnings.warn(f"{algorithm.name} diverged by round {done}, and stopped: {remedy}", stacklevel=2)
                break
    return History(task, algorithm.name, rows, server, clients, memory, meter.result(), diverged)


def play_round(
    algorithm: Algorithm,
    server: State,
    clients: StateBank,
    memory: StateBank,
    active: Ids,
    upcoming: Ids,
    now: Round,
    work: Engine,
) -> tuple[State, Traffic]:
    """One round with the cohort stacked: the server's next state and what was sent. Banks are updated.

    `upcoming` are the next round's clients, whose states may be fetched while the device works on this one's.
    """
    client, row = clients.gather(active), memory.gather(active)
    down = algorithm.downlink(server, now)
    plan = algorithm.plan(client, down, now)
    G: Tensor = work(plan, active, now.t)
    clients.expect(upcoming)
    memory.expect(upcoming)
    uplink, client = algorithm.report(client, down, plan, G, now)
    contribution, row = algorithm.digest(row, uplink, now)
    total = {name: value.sum(0) for name, value in contribution.items()}
    server = algorithm.merge(server, total, len(active), now)
    farewell = algorithm.farewell(server, now)
    client = algorithm.receive(client, farewell, now)
    clients.scatter(active, client)
    memory.scatter(active, row)
    return server, (count(down) + count(farewell)) * len(active) + count(uplink, stacked=True)


def _bound(task: BaseTask, device: torch.device, dtype: torch.dtype) -> BaseTask:
    """The task there, kept as long as the caller's: another run finds its data and graphs there."""
    if device.type != "cuda":
        return task.to(device, dtype)
    # A task that was changed since is another one.
    key = device, dtype, tuple((name, id(value)) for name, value in vars(task).items())
    kept = _BOUND.setdefault(task, {})
    if key not in kept:
        kept[key] = task.to(device, dtype)
    return kept[key]


_BOUND: WeakKeyDictionary[BaseTask, dict[Any, BaseTask]] = WeakKeyDictionary()


def _device(name: str | torch.device) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise InputError("device", name, "'auto', 'cpu', 'cuda', or a torch device") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device", str(name), "no CUDA device is here; 'auto' or 'cpu' is")
    return device
