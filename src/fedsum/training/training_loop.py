"""The loop over rounds: schedule -> one round -> evaluate -> notify the observers."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

import torch

from ..algorithms import Algorithm
from ..base.checks import InputError
from ..engine import StateBank, arithmetic, bound_task, choose_engine, evaluation
from ..participation import DelayMeter, Ids, Schedule, as_ids
from ..tasks import BaseTask, Quadratic
from ..theory import learning_rates
from .history import History
from .observer import Observer, RoundDone, Training
from .options import Options
from .round import play_round
from .state import RunState


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
        refuse_mismatch(task, schedule)
        device = options.torch_device()
        with arithmetic(device, options.precision, options.deterministic):
            bound = bound_task(task, device, options.dtype)
            return _Loop(bound, algorithm, schedule, options, device, observers).run()


def refuse_mismatch(task: BaseTask, schedule: Schedule) -> None:
    if schedule.n != task.n:
        raise InputError("schedule.n", schedule.n, f"the task has {task.n} clients")


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
    ) -> None:
        algorithm.check(options.record(0, task.n))
        x0 = task.init(options.seed)
        self.device = x0.device  # not the run's device if the task ignores `to`
        self.state = RunState(
            server=algorithm.init_server(x0, options.record(0, task.n)),
            clients=StateBank(algorithm.init_client(x0)),
            memory=StateBank(algorithm.init_row(x0)),
            meter=DelayMeter(task.n),
        )
        self.training = Training(task, algorithm, schedule, options, device, self.state)
        self.observers = observers
        self.evaluate_model = evaluation(task)
        self.evaluated_model = options.eval_model or algorithm.eval_model
        if self.evaluated_model == "clients" and "x" not in self.state.clients.initial:
            accepted = f"{algorithm.label}'s clients have no model; use 'server'"
            raise InputError("eval_model", self.evaluated_model, accepted)

    def run(self) -> History:
        run, state = self.training, self.state
        task, algorithm, options = run.task, run.algorithm, run.options
        for observer in self.observers:
            observer.restore(run)
        for observer in self.observers:
            observer.started(run)
        diverged = None
        engine = choose_engine(
            options.engine,
            task,
            self.device,
            seed=options.seed,
            K=options.local_steps,
            batch_size=options.batch_size,
            rounds=options.rounds,
        )
        with closing(engine):
            if not state.rows:
                self._evaluate()
            upcoming = self._active(state.done) if state.done < options.rounds else None
            clock = _Clock(state, self.device)
            while upcoming is not None and diverged is None:
                active, now = upcoming, options.record(state.done, task.n)
                upcoming = self._active(now.t + 1) if now.t + 1 < options.rounds else None
                state.sent += play_round(algorithm, state, active, upcoming, now, engine)
                tau, row = state.meter.update(active), None
                with clock.halted(exactly=options.evaluates(state.done)):
                    if options.evaluates(state.done):
                        row = self._evaluate()
                        if not (math.isfinite(row["train_loss"]) and state.server["x"].isfinite().all()):
                            diverged = state.done
                    done = RoundDone(state.done, active, tau, row, diverged is not None)
                    for observer in self.observers:
                        observer.round_done(run, done)
        delays = state.meter.result()
        history = History(
            task, algorithm.label, state.rows, state.server, state.clients, state.memory, delays, diverged
        )
        if diverged is None:
            for observer in reversed(self.observers):
                observer.finished(run, history)
            return history
        reason = f"{algorithm.label} diverged by round {diverged}, and stopped: {_remedy(task, options, history)}"
        for observer in reversed(self.observers):
            observer.diverged(run, reason)
        return replace(history, reason=reason)

    def _active(self, t: int) -> Ids:
        run = self.training
        ids = run.schedule.active(run.options.seed, t)
        return as_ids(f"schedule.active(seed={run.options.seed}, round={t})", ids, run.task.n)

    def _evaluate(self) -> dict[str, float]:
        state, started = self.state, time.perf_counter()
        row: dict[str, float] = {"round": state.done}
        if self.evaluated_model == "clients":
            row |= self.evaluate_model(state.clients.mean("x", self.training.task.n))
            row |= {f"server_{name}": value for name, value in self.evaluate_model(state.server["x"]).items()}
        else:
            row |= self.evaluate_model(state.server["x"])
        state.evaluation_seconds += time.perf_counter() - started
        row |= {"communication": state.sent.vectors, "bytes": state.sent.bytes}
        row |= {"tau": state.meter.tau[-1] if state.done else 0}
        row |= {"seconds": state.training_seconds, "eval_seconds": state.evaluation_seconds}
        # As Python numbers, because the row is written to files.
        row = {name: value if isinstance(value, int) else float(value) for name, value in row.items()}
        state.rows.append(row)
        for observer in self.observers:
            observer.evaluated(self.training, row)
        return row


class _Clock:
    """Training time, without the time that evaluations, observers and checkpoints take."""

    def __init__(self, state: RunState, device: torch.device) -> None:
        self._state, self._device = state, device
        self._since = time.perf_counter()

    @contextmanager
    def halted(self, exactly: bool) -> Iterator[None]:
        if exactly and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # otherwise the evaluation's time would include pending rounds
        self._state.training_seconds += time.perf_counter() - self._since
        try:
            yield
        finally:
            self._since = time.perf_counter()


def _remedy(task: BaseTask, options: Options, history: History) -> str:
    """Theorem 1's learning rates for the measured delays; as a multiple of 1/L if the task does not know L."""
    delays = history.delays
    constants: dict[str, float] = (
        task.constants() if isinstance(task, Quadratic) else {"L": 1.0, "sigma": 0, "Delta_f": 1}
    )
    rates = learning_rates(
        **{name: constants[name] for name in ("L", "sigma", "Delta_f")},
        N=task.n,
        K=options.local_steps,
        T=options.rounds,
        tau_max=delays.max,
        tau_avg=delays.avg,
    )
    over_L = "" if isinstance(task, Quadratic) else "/L (L: smoothness of the loss)"
    return (
        f"try a smaller eta_l; for the delays so far, tau_max = {delays.max}, theory's rates are"
        f" eta_l = {rates.eta_l:.3g}{over_L} and eta_g = {rates.eta_g:.3g}"
    )
