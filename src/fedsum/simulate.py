"""The round loop: schedule -> gather -> plan -> engine -> report -> merge -> scatter -> evaluate."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .algorithms import Algorithm, Round, State, Traffic, count
from .checks import InputError, integer, nearest, real
from .engine import LoopEngine, StateBank
from .history import History
from .participation import DelayMeter, Ids, Schedule
from .participation.base import as_ids
from .tasks import BaseTask

ENGINES = {"loop": LoopEngine}


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
      engine: "auto" or "loop".
      device: "auto", "cpu", "cuda" or a torch device.
      dtype: of all vectors.
      on_round: called after every round.
    """
    integer("rounds", rounds, low=1)
    integer("local_steps", local_steps, low=1)
    integer("batch_size", batch_size, low=1)
    integer("seed", seed, low=0)
    integer("eval_every", eval_every, low=1)
    integer("eval_last", eval_last, low=0)
    real("eta_g", eta_g, above=0)
    if schedule.n != task.n:
        raise InputError("schedule.n", schedule.n, f"the task has {task.n} clients")
    if engine != "auto" and engine not in ENGINES:
        raise InputError("engine", engine, nearest(engine, ["auto", *ENGINES]))

    def record(t: int) -> Round:
        rate = real(f"eta_l({t})", eta_l(t), above=0) if callable(eta_l) else real("eta_l", eta_l, above=0)
        return Round(t=t, N=task.n, K=local_steps, eta_l=rate, eta_g=eta_g)

    where = torch.device(_auto_device() if device == "auto" else device)
    task = task.to(where, dtype)
    work = ENGINES["loop" if engine == "auto" else engine](task, seed, local_steps, batch_size)
    x0 = task.init(seed)
    server = algorithm.init_server(x0, record(0))
    clients, memory = StateBank(algorithm.init_client(x0)), StateBank(algorithm.init_row(x0))
    meter, sent = DelayMeter(task.n), Traffic()
    eval_model = eval_model or algorithm.eval_model
    if eval_model == "clients" and "x" not in clients.initial:
        raise InputError("eval_model", eval_model, f"{algorithm.name}'s clients keep no model; use 'server'")
    started = time.perf_counter()

    def evaluate(done: int) -> dict[str, float]:
        row: dict[str, float] = {"round": done}
        if eval_model == "clients":
            row |= task.evaluate(clients.mean("x", task.n))
            row |= {f"server_{name}": value for name, value in task.evaluate(server["x"]).items()}
        else:
            row |= task.evaluate(server["x"])
        row |= {"communication": sent.vectors, "bytes": sent.bytes}
        row |= {"tau": meter.tau[-1] if done else 0, "seconds": time.perf_counter() - started}
        return row

    rows = [evaluate(0)]
    for t in range(rounds):
        now = record(t)
        active = as_ids(f"schedule.active(seed={seed}, round={t})", schedule.active(seed, t), task.n)
        server, traffic = play_round(algorithm, server, clients, memory, active, now, work)
        sent += traffic
        tau, done = meter.update(active), t + 1
        due = done % eval_every == 0 or done == rounds or done > rounds - eval_last
        if due:
            rows.append(evaluate(done))
        if on_round:
            on_round(RoundDone(done, active, tau, rows[-1] if due else None))
    return History(task, algorithm.name, rows, server, clients, memory, meter.result())


def play_round(
    algorithm: Algorithm,
    server: State,
    clients: StateBank,
    memory: StateBank,
    active: Ids,
    now: Round,
    work: LoopEngine,
) -> tuple[State, Traffic]:
    """One round with the cohort stacked: the server's next state and what was sent. Banks are updated."""
    client, row = clients.gather(active), memory.gather(active)
    down = algorithm.downlink(server, now)
    plan = algorithm.plan(client, down, now)
    G: Tensor = work(plan, active, now.t)
    uplink, client = algorithm.report(client, down, plan, G, now)
    contribution, row = algorithm.digest(row, uplink, now)
    total = {name: value.sum(0) for name, value in contribution.items()}
    server = algorithm.merge(server, total, len(active), now)
    farewell = algorithm.farewell(server, now)
    client = algorithm.receive(client, farewell, now)
    clients.scatter(active, client)
    memory.scatter(active, row)
    return server, (count(down) + count(farewell)) * len(active) + count(uplink, stacked=True)


def _auto_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
