"""Checks of a user's own algorithm: the identities that hold for any algorithm of this interface."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn
from weakref import WeakSet

import torch
from torch import Tensor

from ..base.checks import InputError
from .base import Algorithm, LocalPlan, Round, State

_COHORTS: tuple[list[int], ...] = ([0, 1, 2], [1, 3], [], [4, 0, 2, 1])
"""active clients per round: new and known clients, and a round without clients"""
_N, _D = 5, 7
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
_LOW_PRECISION = 0.1
_MOST_PARAMETERS = 2_000_000
_CHECKED: WeakSet[type[Algorithm]] = WeakSet()
"""classes that `check_once` has checked"""
_SCALARS = ("step", "pull", "decay")
"""of a LocalPlan"""
_Tensors = Mapping[str, Tensor]


def check(algorithm: Algorithm, x0: Tensor | None = None) -> None:
    """Checks an algorithm of your own; raises an InputError that names the function which breaks a rule.

    The algorithm trains five clients on random gradients for four rounds, one of them without clients. In each round,

    - every function gives the same for one client at a time as for the stacked cohort,
    - no function changes its arguments, and the same arguments give the same result,
    - states keep their names, shapes and dtypes, and stay finite,
    - messages and states of a cohort have one row per client.

    Functions that draw random numbers from torch are compared by shape only.

    Args:
      algorithm: an object of your class.
      x0: an initial model, for an algorithm that depends on the model's size; default: a short random vector.

    >>> import fedsum
    >>> fedsum.check(fedsum.FedSUM())
    """
    if not isinstance(algorithm, Algorithm):
        raise InputError("algorithm", algorithm, "an object of a class derived from fedsum.Algorithm")
    for dtype in (torch.float64, torch.float32) if x0 is None else (x0.dtype,):
        # The caller's random numbers do not change.
        with torch.random.fork_rng(devices=[] if x0 is None or not x0.is_cuda else [x0.device]):
            torch.default_generator.manual_seed(0)
            _Check(algorithm, torch.randn(_D, dtype=dtype) if x0 is None else x0).run()


def check_once(algorithm: Algorithm, x0: Tensor) -> None:
    """`check`, once per class that is not fedsum's own, for models of up to two million parameters."""
    kind = type(algorithm)
    if kind in _CHECKED or kind.__module__.partition(".")[0] == "fedsum" or x0.numel() > _MOST_PARAMETERS:
        return
    check(algorithm, x0.detach())
    _CHECKED.add(kind)


class _Check:
    def __init__(self, algorithm: Algorithm, x0: Tensor) -> None:
        self.algorithm, self.x0 = algorithm, x0
        self.tolerance = _TOLERANCE.get(x0.dtype, _LOW_PRECISION)

    def run(self) -> None:
        x0 = self.x0
        self.server, _ = self._called("init_server", x0, _round(0))
        (client, _), (row, _) = self._called("init_client", x0), self._called("init_row", x0)
        if "x" not in self.server or self.server["x"].shape != x0.shape:
            self._fail("init_server", sorted(self.server), "a state with the model `x`, a vector as long as x0")
        if self.algorithm.eval_model == "clients" and "x" not in client:
            self._fail("init_client", sorted(client), "a state with the model `x`, since eval_model is 'clients'")
        self.clients, self.rows = [client] * _N, [row] * _N
        for t, cohort in enumerate(_COHORTS):
            self._play(cohort, _round(t))

    def _play(self, cohort: list[int], now: Round) -> None:
        """One round, with every function called for the cohort and for each client."""
        client, row = _stacked(self.clients, cohort), _stacked(self.rows, cohort)
        ids = torch.tensor(cohort, dtype=torch.int64)
        client = self._compared("keyed", cohort, client, ids, 0)
        down, _ = self._called("downlink", self.server, now)
        plan = self._compared("plan", cohort, client, down, now)
        self._check_plan(plan, len(cohort))
        G = torch.randn(len(cohort), len(self.x0), dtype=torch.float64).to(self.x0)
        row, _ = self._called("identify", row, ids)
        message, reported = self._compared("report", cohort, client, down, plan, G, now)
        self._check_state("report", client, reported)
        uplink, _ = self._called("unpack", message, self.x0)
        contribution, remembered = self._compared("digest", cohort, row, uplink, now)
        self._check_state("digest", row, remembered)
        total = {name: value.sum(0) for name, value in contribution.items()}
        merged, _ = self._called("merge", self.server, total, len(cohort), now)
        self._check_state("merge", self.server, merged)
        for name, value in merged.items():
            if not value.isfinite().all():
                self._fail("merge", f"{name} is not finite", f"finite numbers for m = {len(cohort)} active clients")
        farewell, _ = self._called("farewell", merged, now)
        received = self._compared("receive", cohort, reported, farewell, now)
        self._check_state("receive", client, received)
        self.server = merged
        for place, i in enumerate(cohort):
            self.clients[i] = {name: value[place] for name, value in received.items()}
            self.rows[i] = {name: value[place] for name, value in remembered.items()}

    # Calls.

    def _called(self, function: str, *arguments: Any) -> tuple[Any, bool]:
        """The result of a function, and whether it is random.

        Refuses an argument that changed, and another result for the same arguments.
        """
        copies, results = [_copied(argument) for argument in arguments], []
        for seed in (1, 1, 2):
            _set_seed(seed, self.x0.device)
            try:
                results.append(getattr(self.algorithm, function)(*arguments))
            except Exception as error:
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                hint = "; init_server and init_client name the states" if isinstance(error, KeyError) else ""
                accepted = f"must not raise an error; it was called with {_shapes(arguments)}{hint}"
                raise self._error(function, reason, accepted) from error
            self._check_types(function, results[-1])
            if not all(_equal(_flat(a), _flat(b)) for a, b in zip(copies, arguments, strict=True)):
                self._fail(function, "an argument changed in place", "leave arguments unchanged, return new tensors")
        first, again, other_seed = (_flat(result) for result in results)
        if not _equal(first, again):
            accepted = "one result: keep state in the returned states, and draw random numbers with torch"
            self._fail(function, "two results for the same arguments", accepted)
        return results[0], not _equal(first, other_seed)

    def _compared(self, function: str, cohort: list[int], *arguments: Any) -> Any:
        """The result for the stacked cohort; refuses a result that differs from that for one client at a time."""
        result, random = self._called(function, *arguments)
        together, clients = _flat(result), len(cohort)
        for place in range(clients):
            own_arguments = [_own(function, position, value, place) for position, value in enumerate(arguments)]
            own_result, _ = self._called(function, *own_arguments)
            alone = _flat(own_result)
            if alone.keys() != together.keys():
                self._fail(function, sorted(together), f"the same names as for one client, {sorted(alone)}")
            for name, value in alone.items():
                # The cohort may share the vectors of a plan.
                shared = function == "plan" and together[name].dim() == value.dim()
                if not shared and together[name].shape != (clients, *value.shape):
                    accepted = (
                        f"{[clients, *value.shape]} for {clients} clients, since it is {list(value.shape)} for one"
                    )
                    self._fail(function, f"{name} of shape {list(together[name].shape)}", accepted)
                difference = _difference(together[name] if shared else together[name][place], value)
                if difference > self.tolerance and not random:
                    accepted = (
                        f"the same for one client as in a cohort of {clients}; a sum or norm over a client's vector"
                        " needs dim=-1, keepdim=True"
                    )
                    self._fail(function, f"{name} differs by {difference:.1%}", accepted)
            for name in _SCALARS if function == "plan" else ():
                of_all, own = getattr(result, name), getattr(own_result, name)
                if of_all != own:
                    self._fail(function, f"{name} {of_all}", f"the same for one client, which has {own}")
        return result

    # Results.

    def _check_types(self, function: str, result: Any) -> None:
        if function == "plan":
            if not isinstance(result, LocalPlan):
                self._fail(function, type(result).__name__, "a fedsum.LocalPlan")
            for name in _SCALARS:
                value = getattr(result, name)
                if isinstance(value, bool) or not isinstance(value, int | float):
                    self._fail(function, f"{name} {type(value).__name__}", "a number, the same for all clients")
            return
        pair = function in ("report", "digest")
        if pair and (not isinstance(result, tuple) or len(result) != 2):
            self._fail(function, type(result).__name__, "a pair: the message, and the next state")
        for part in result if pair else (result,):
            if not isinstance(part, dict) or not all(isinstance(value, Tensor) for value in part.values()):
                self._fail(function, type(part).__name__, "a dict of named tensors")

    def _check_plan(self, plan: LocalPlan, clients: int) -> None:
        d = len(self.x0)
        for name, vectors in _flat(plan).items():
            if vectors.shape not in ((d,), (clients, d)):
                self._fail("plan", f"{name} of shape {list(vectors.shape)}", f"[{d}] or [{clients}, {d}]")

    def _check_state(self, function: str, before: _Tensors, after: _Tensors) -> None:
        """Refuses a state whose names, shapes or dtypes differ from those before."""
        if before.keys() != after.keys():
            self._fail(function, sorted(after), f"a state with the names of the initial state, {sorted(before)}")
        for name, value in after.items():
            if (value.shape, value.dtype) != (before[name].shape, before[name].dtype):
                was, now = (f"{list(tensor.shape)} {tensor.dtype}" for tensor in (before[name], value))
                self._fail(function, f"{name} {now}", f"shape and dtype of the initial state, {was}")

    def _fail(self, function: str, value: Any, accepted: str) -> NoReturn:
        raise self._error(function, value, accepted)

    def _error(self, function: str, value: Any, accepted: str) -> InputError:
        return InputError(f"{type(self.algorithm).__name__}.{function}", value, accepted)


def _round(t: int) -> Round:
    return Round(t=t, N=_N, K=3, eta_l=0.1 / (t + 1), eta_g=0.5)


def _set_seed(seed: int, device: torch.device) -> None:
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _stacked(states: Sequence[State], cohort: list[int]) -> State:
    return {
        name: torch.stack([states[i][name] for i in cohort]) if cohort else value.new_empty(0, *value.shape)
        for name, value in states[0].items()
    }


def _own(function: str, position: int, argument: Any, place: int) -> Any:
    """One client's row of an argument. Messages from the server, such as `down`, are the same for all clients."""
    if isinstance(argument, LocalPlan):
        rows: dict[str, Any] = {n: v if v.dim() == 1 else v[place] for n, v in _flat(argument).items()}
        return replace(argument, **rows)
    if isinstance(argument, Tensor):
        return argument[place]
    from_server = position == 1 and function != "digest"
    if from_server or not isinstance(argument, Mapping):
        return argument
    return {name: value[place] for name, value in argument.items()}


def _flat(result: Any) -> dict[str, Tensor]:
    """All tensors in an argument or a result, by name."""
    if isinstance(result, Tensor):
        return {"": result}
    if isinstance(result, LocalPlan):
        vectors = {"start": result.start, "correction": result.correction}
        return {name: value for name, value in vectors.items() if value is not None}
    if isinstance(result, Mapping):
        return dict(result)
    if isinstance(result, tuple):
        message, state = result
        return {**{f"message {n!r}": v for n, v in message.items()}, **{f"state {n!r}": v for n, v in state.items()}}
    return {}


def _copied(argument: Any) -> Any:
    if isinstance(argument, LocalPlan):
        vectors: dict[str, Any] = {name: value.clone() for name, value in _flat(argument).items()}
        return replace(argument, **vectors)
    if isinstance(argument, Mapping):
        return {name: value.clone() for name, value in argument.items()}
    return argument.clone() if isinstance(argument, Tensor) else argument


def _equal(one: _Tensors, other: _Tensors) -> bool:
    return one.keys() == other.keys() and all(
        value.shape == other[name].shape and torch.equal(value.nan_to_num(), other[name].nan_to_num())
        for name, value in one.items()
    )


def _difference(one: Tensor, other: Tensor) -> float:
    """The largest difference of two vectors, relative to their largest number."""
    if not one.numel():
        return 0.0
    if not torch.equal(one.isfinite(), other.isfinite()):
        return float("inf")
    a, b = one.double().nan_to_num(), other.double().nan_to_num()
    return float((a - b).abs().max() / torch.stack([a.abs().max(), b.abs().max()]).max().clamp(min=1e-12))


def _shapes(arguments: Sequence[Any]) -> str:
    tensors = {name or "G": value for argument in arguments for name, value in _flat(argument).items()}
    return ", ".join(f"{name} {list(value.shape)}" for name, value in tensors.items()) or "no tensors"
