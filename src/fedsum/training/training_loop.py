"""The loop over rounds: schedule -> one round -> evaluate -> notify the observers."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import theory
from ..algorithms import Algorithm, check_once
from ..base.checks import InputError
from ..base.keyed import Purpose
from ..engine import (
    StateBank,
    arithmetic,
    bound_task,
    choose_engine,
    client_evaluation,
    evaluation,
    keyed_noise,
    regularised,
)
from ..participation import DelayMeter, Ids, Schedule, as_ids, refuse_short
from ..tasks import BaseTask, Quadratic, directions_of
from .history import History
from .local_steps import mean_steps, refuse_unequal_steps, step_counts
from .observer import Observer, RoundDone, Training
from .options import Options
from .ranks import Ranks, joined_ranks
from .rates import PerRound
from .round import play_round
from .round_clock import RoundClock, schedule_of_run
from .served import served_metrics, served_table
from .state import RunState
from .stopping import exploded
from .training_clock import TrainingClock


def train(
    task: BaseTask,
    algorithm: Algorithm,
    schedule: Schedule,
    options: Options,
    observers: Sequence[Observer] = (),
) -> History:
    """Trains `task` with `algorithm` under the participation `schedule`.

    Observers are notified in order, and of the end of the run in reverse order: the last observer records the run, so
    an error in another observer comes too late to prevent that.
    """
    with ExitStack() as stack:
        for observer in reversed(observers):
            stack.callback(observer.closed)  # also if another observer raises
        refuse_mismatch(task, algorithm, schedule, options)
        ranks = joined_ranks()
        device = ranks.device(options.torch_device())
        with arithmetic(device, options.precision, options.deterministic):
            bound = bound_task(task, device, options.dtype, options.precision)
            return _Loop(bound, algorithm, schedule, options, device, observers, ranks).run()


def refuse_mismatch(task: BaseTask, algorithm: Algorithm, schedule: Schedule, options: Options) -> None:
    """Refuses parts of a run that do not fit: classes instead of objects, other clients, fewer rounds, asynchrony."""
    for part, given in (("task", task), ("algorithm", algorithm), ("schedule", schedule)):
        if isinstance(given, type):
            raise InputError(part, given.__name__, f"an object, not a class, such as {given.__name__}(...)")
    if isinstance(schedule, Algorithm) and hasattr(algorithm, "active"):
        raise InputError("algorithm", algorithm, "this is a schedule; the arguments are (task, algorithm, schedule)")
    if not isinstance(algorithm, Algorithm):
        raise InputError("algorithm", algorithm, "an algorithm object, such as fedsum.FedSUM()")
    if not hasattr(schedule, "active"):
        raise InputError("schedule", schedule, f"a schedule object, such as fedsum.Uniform({task.n}, 1)")
    rounds = options.rounds
    names, task_names = _names_of(schedule), getattr(task, "client_names", None)
    same_order = "; give both the same order with clients=task.client_names" if names and task_names else ""
    if schedule.n != task.n:
        raise InputError("schedule.n", schedule.n, f"the task has {task.n} clients{same_order}")
    if options.devices is not None and options.devices.n not in (None, task.n):
        raise InputError("devices.n", options.devices.n, f"the task has {task.n} clients")
    _refuse_another_order("schedule.names", names, "task.client_names", task_names)
    reference = ("task.client_names", task_names) if task_names else ("schedule.names", names)
    for place, devices in (("devices", options.devices), ("schedule.devices", getattr(schedule, "devices", None))):
        _refuse_another_order(f"{place}.names", getattr(devices, "names", None), *reference)
    if hasattr(schedule, "dispatch"):
        if options.devices is not None:
            raise InputError("devices", options.devices, "none: an asynchronous schedule has its own devices")
        if algorithm.only_synchronous:
            raise InputError("algorithm", algorithm, f"needs a synchronous schedule: {algorithm.only_synchronous}")
    refuse_short(schedule, rounds)
    parts: dict[str, Any] = {"schedule": schedule, "algorithm": algorithm}
    for part, source in parts.items():
        for name in [field.name for field in fields(source)] if is_dataclass(source) else []:
            value = getattr(source, name)
            if isinstance(value, PerRound) and len(value.values) < rounds:
                accepted = f"one value for each of {rounds} rounds"
                raise InputError(f"{part}.{name}", f"{len(value.values)} values", accepted)


def _refuse_another_order(
    field: str, names: Sequence[str] | None, reference: str, ordered: Sequence[str] | None
) -> None:
    """Refuses names that `ordered`, the names of `reference`, has too, but with other ids."""
    if not names or not ordered:
        return
    id_of = {name: i for i, name in enumerate(ordered)}
    for i, name in enumerate(names):
        if id_of.get(name, i) != i:
            whose = f"client {i} of the {reference.partition('.')[0]}"
            accepted = f"{ordered[i]!r}, which is {whose}; give both the same order with clients={reference}"
            raise InputError(f"{field}[{i}]", name, accepted)


def _names_of(schedule: Schedule) -> Sequence[str] | None:
    """The names of the clients in a log, by id; None if the schedule is not of a log."""
    names: Sequence[str] | None = getattr(getattr(schedule, "availability", schedule), "names", None)
    return names


class _Loop:
    """One run: its state, its evaluations, its rounds."""

    def __init__(
        self,
        task: BaseTask,
        algorithm: Algorithm,
        schedule: Schedule,
        options: Options,
        device: torch.device,
        observers: Sequence[Observer],
        ranks: Ranks,
    ) -> None:
        self.counts = step_counts(task, options)
        self.K = mean_steps(self.counts)
        refuse_unequal_steps(algorithm, self.counts)
        self.shares = None
        if not isinstance(self.counts, int) and algorithm.unequal_steps == "displacements":
            self.shares = self.counts / self.K
        first = options.record(0, task.n, self.K)
        algorithm.check(first)
        x0 = task.init(options.seed)
        check_once(algorithm, x0)
        self.device = x0.device  # not the run's device if the task ignores `to`
        self.state = RunState(
            server=algorithm.init_server(x0, first),
            clients=StateBank(algorithm.init_client(x0)),
            memory=StateBank(algorithm.init_row(x0)),
            meter=DelayMeter(task.n),
        )
        schedule = schedule_of_run(schedule, algorithm, self.state, first, self.counts)
        self.dispatch, self.time = getattr(schedule, "dispatch", None), getattr(schedule, "time", None)
        self.training = Training(task, algorithm, schedule, options, device, self.state, ranks)
        self.observers = observers
        self.round_clock = RoundClock(algorithm, options.devices, options, self.counts) if options.devices else None
        self.evaluate_model = evaluation(task)
        self.evaluate_clients = client_evaluation(task) if options.per_client else None
        self.evaluated_model = options.eval_model or algorithm.eval_model
        if self.evaluated_model == "clients" and "x" not in self.state.clients.initial:
            accepted = f"{algorithm.label}'s clients have no model; use 'server'"
            raise InputError("eval_model", self.evaluated_model, accepted)

    def run(self) -> History:
        run, state = self.training, self.state
        task, algorithm, options = run.task, run.algorithm, run.options
        for observer in self.observers:
            observer.restore(run)
        engine = choose_engine(
            options.engine,
            regularised(task, options.clip_norm, options.weight_decay),
            self.device,
            seed=options.seed,
            K=self.counts,
            batch_size=options.batch_size,
            rounds=options.rounds,
            chosen=state.engine,
        )
        state.engine = engine.name
        diverged = None
        with closing(engine):
            for observer in self.observers:
                observer.started(run)
            if not state.rows:
                initial = self._evaluate()
                if not math.isfinite(initial["train_loss"]):
                    accepted = "a finite loss of the initial model: check the data, `prepare` and the loss for NaN"
                    raise InputError("train_loss", initial["train_loss"], accepted)
            stopped = self._stop_reason()  # a resumed run may have stopped early
            upcoming = self._active(state.done) if state.done < options.rounds else None
            clock = TrainingClock(state, self.device)
            while upcoming is not None and diverged is None and not stopped:
                active, now = upcoming, options.record(state.done, task.n, self.K)
                upcoming = self._active(now.t + 1) if now.t + 1 < options.rounds else None
                closed, expected = None, upcoming
                if self.round_clock:
                    closed = self.round_clock.close(active, state, now)
                    active = closed.active
                    if not options.everyone_in_time:
                        expected = None  # who is late in the next round is not known yet
                    state.sent += closed.lost
                    state.time, state.late = state.time + closed.seconds, state.late + len(closed.late)
                sent = self._checked("dispatch", self.dispatch, now.t) if self.dispatch else None
                state.sent += play_round(
                    algorithm, state, active, expected, now, engine, options.seed, self.shares, run.ranks, sent
                )
                state.engine = engine.name
                if self.time:
                    state.time = float(self.time(options.seed, now.t))
                tau, row = state.meter.update(active), None
                with clock.halted(exactly=options.evaluates(state.done)):
                    if options.evaluates(state.done):
                        row = self._evaluate()
                        if not (math.isfinite(row["train_loss"]) and state.server["x"].isfinite().all()):
                            diverged = state.done
                        else:
                            stopped = self._stop_reason()
                    done = RoundDone(state.done, active, tau, row, diverged is not None, closed)
                    for observer in self.observers:
                        observer.round_done(run, done)
        # After a checkpoint of the last round, nothing was evaluated.
        if self.evaluate_clients and run.ranks.from_first(lambda: state.served is None):
            self._main_metrics(self._evaluated())
        delays = state.meter.result()
        history = History(
            task,
            algorithm.label,
            state.rows,
            state.server,
            state.clients,
            state.memory,
            delays,
            diverged,
            per_client=state.served,
            seed=options.seed,
        )
        remedy = partial(_remedy, algorithm, task, run.schedule, options.eta_g, round(self.K), history)
        if diverged is None:
            rose = exploded(state.rows)
            reason = stopped or (f"{rose}: {remedy()}" if rose else "")
            history = replace(history, stopped=state.done if stopped else None, reason=reason)
            for observer in reversed(self.observers):
                observer.finished(run, history)
            return history
        reason = f"{algorithm.label} diverged by round {diverged}, and stopped: {remedy()}"
        for observer in reversed(self.observers):
            observer.diverged(run, reason)
        return replace(history, reason=reason)

    def _stop_reason(self) -> str:
        rule, rows = self.training.options.stop, self.state.rows
        if rule is None:
            return ""
        stated = directions_of(self.training.task)
        rule.refuse_unknown(rows[0], stated)
        return rule.reason(rows, stated)

    def _active(self, t: int) -> Ids:
        return self._checked("active", self.training.schedule.active, t)

    def _checked(self, name: str, clients: Callable[[int, int], Ids], t: int) -> Ids:
        seed = self.training.options.seed
        return as_ids(f"schedule.{name}(seed={seed}, round={t})", clients(seed, t), self.training.task.n)

    def _evaluate(self) -> dict[str, float]:
        x = self._evaluated()
        # Computed by one rank, so that all of them decide alike whether the run goes on.
        row = self.training.ranks.from_first(lambda: self._row(x))
        self.state.rows.append(row)
        for observer in self.observers:
            observer.evaluated(self.training, row)
        return row

    def _row(self, x: Tensor) -> dict[str, float]:
        state, started = self.state, time.perf_counter()
        row: dict[str, float] = {"round": state.done}
        row |= self._main_metrics(x)
        if "train_loss" not in row:
            accepted = "metrics with train_loss, the mean over all training samples"
            raise InputError("task.evaluate", [name for name in row if name != "round"], accepted)
        if self.evaluated_model == "clients":
            row |= {f"server_{name}": value for name, value in self._metrics(state.server["x"]).items()}
        state.evaluation_seconds += time.perf_counter() - started
        row |= {"communication": state.sent.vectors, "bytes": state.sent.bytes}
        row |= {"tau": state.meter.tau[-1] if state.done else 0}
        if self.round_clock or self.time:
            row |= {"time": state.time}
        if self.round_clock:
            row |= {"late": state.late}
        row |= {"seconds": state.training_seconds, "eval_seconds": state.evaluation_seconds}
        # As Python numbers, because the row is written to files. A bool, which is an int too, would be written as True.
        return {name: int(value) if isinstance(value, int) else float(value) for name, value in row.items()}

    def _evaluated(self) -> Tensor:
        """The evaluated model."""
        state, run = self.state, self.training
        if self.evaluated_model != "clients":
            return state.server["x"]
        mean = state.clients.mean("x", run.task.n)
        if run.ranks.count == 1:
            return mean
        # Each rank counts the clients of the others with their initial state.
        return run.ranks.sum({"x": mean})["x"] - (run.ranks.count - 1) * state.clients.initial["x"]

    def _main_metrics(self, x: Tensor) -> dict[str, float]:
        """The metrics of the evaluated model, and with `per_client` also of its clients."""
        state, task = self.state, self.training.task
        if self.evaluate_clients is None:
            return self._metrics(x)
        with self._keyed():
            row, scores = self.evaluate_clients(x)
        counts = state.meter.counts
        state.served = served_table(task, scores, counts.copy())
        return row | served_metrics(scores, counts, getattr(task, "client_groups", None))

    def _metrics(self, x: Tensor) -> dict[str, float]:
        with self._keyed():
            return self.evaluate_model(x)

    def _keyed(self) -> AbstractContextManager[None]:
        """For an evaluation that draws random numbers, as a user's preparation or loss may."""
        run = self.training
        return keyed_noise(run.task, run.options.seed, self.state.done, 0, self.device, Purpose.EVALUATION)


def _remedy(algorithm: Algorithm, task: BaseTask, schedule: Schedule, eta_g: float, K: int, history: History) -> str:
    """The largest eta_l that theory covers at the run's eta_g, for the measured delays.

    It is a multiple of 1/L if the task does not know L, and FedSUM's if the paper does not analyse the algorithm.
    """
    if hasattr(schedule, "dispatch"):
        return "try a smaller eta_l; theory does not cover asynchronous training"
    if isinstance(task, Quadratic):
        L, over_L, way_out = task.L, "", ""
    else:
        L, over_L = 1.0, "/L (L: smoothness of the loss)"
        way_out = ", and scale the inputs; `fedsum delays` with --task advises a rate"
    label = algorithm.label if algorithm.label in theory.FAMILY else "FedSUM"
    tau_max = history.delays.max
    largest = theory.largest_eta_l(eta_g, algorithm=label, L=L, K=K, tau_max=tau_max)
    return (
        f"try a smaller eta_l{way_out}. For the delays so far, tau_max = {tau_max}, theory guarantees that {label}"
        f" converges up to eta_l = {largest:.3g}{over_L} at eta_g = {eta_g:g}"
    )
