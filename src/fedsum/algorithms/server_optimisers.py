"""Server optimisers: a step of the server along a pseudo-gradient u, the negative change of x that a round proposes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ..base.checks import probability, real, set_fields
from .base import State


@dataclass(frozen=True)
class ServerOptimiser(ABC):
    """The interface of a server optimiser: a state of named vectors, and a step.

    Args:
      lr: learning rate of the server.
    """

    lr: float = 0.1

    def __post_init__(self) -> None:
        set_fields(self, lr=real("lr", self.lr, above=0))

    @abstractmethod
    def init(self, x0: Tensor) -> State:
        """The state before the first step."""

    @abstractmethod
    def step(self, state: State, u: Tensor) -> tuple[Tensor, State]:
        """The vector that is subtracted from x, and the next state, given the pseudo-gradient u."""


@dataclass(frozen=True)
class SGD(ServerOptimiser):
    """SGD with momentum on the server: m <- momentum m + u;  x -= lr m.

    u is the negative change of the server's model x that the algorithm proposes. `SGD()` is x -= u: the algorithm
    itself.

    Args:
      lr: learning rate of the server.
      momentum: the share of m that remains after a step.

    >>> SGD(lr=0.5).step({}, torch.tensor([0.2]))[0]
    tensor([0.1000])
    """

    lr: float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, momentum=probability("momentum", self.momentum, zero=True, one=False))

    def init(self, x0: Tensor) -> State:
        return {"m": torch.zeros_like(x0)} if self.momentum else {}

    def step(self, state: State, u: Tensor) -> tuple[Tensor, State]:
        if not self.momentum:
            return self.lr * u, {}
        m = self.momentum * state["m"] + u
        return self.lr * m, {"m": m}


@dataclass(frozen=True, kw_only=True)
class _Adaptive(ServerOptimiser):
    """m <- beta1 m + (1 - beta1) u;  x -= lr m / (sqrt(v) + tau). At first, m = 0 and v = tau^2."""

    beta1: float = 0.9
    tau: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        beta1 = probability("beta1", self.beta1, zero=True, one=False)
        set_fields(self, beta1=beta1, tau=real("tau", self.tau, above=0))

    def init(self, x0: Tensor) -> State:
        return {"m": torch.zeros_like(x0), "v": torch.full_like(x0, self.tau**2)}

    def step(self, state: State, u: Tensor) -> tuple[Tensor, State]:
        m = self.beta1 * state["m"] + (1 - self.beta1) * u
        v = self.second_moment(state["v"], u.square())
        return self.lr * m / (v.sqrt() + self.tau), {"m": m, "v": v}

    @abstractmethod
    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """The next v, given u squared."""


@dataclass(frozen=True, kw_only=True)
class Adagrad(_Adaptive):
    """Adagrad on the server: v <- v + u^2;  m <- beta1 m + (1 - beta1) u;  x -= lr m / (sqrt(v) + tau).

    u is the negative change of the server's model x that the algorithm proposes; m and v are its moments.

    Args:
      lr: learning rate of the server.
      beta1: the share of m that remains after a step; 0 as in Reddi et al. (2021).
      tau: added to sqrt(v); v starts at tau^2.

    >>> import fedsum
    >>> fedsum.ServerOpt(fedsum.FedSUM(), Adagrad(0.1)).label
    'FedSUM + Adagrad'
    """

    beta1: float = 0.0

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        return v + squared


@dataclass(frozen=True, kw_only=True)
class _Decaying(_Adaptive):
    """Adaptive, with a second moment that is an exponential moving average with decay beta2."""

    beta2: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, beta2=probability("beta2", self.beta2, zero=True, one=False))


@dataclass(frozen=True)
class Yogi(_Decaying):
    """Yogi on the server: v <- v - (1 - beta2) u^2 sign(v - u^2);  m <- beta1 m + (1 - beta1) u;
    x -= lr m / (sqrt(v) + tau).

    u is the negative change of the server's model x that the algorithm proposes; m and v are its moments.

    Args:
      lr: learning rate of the server.
      beta1: the share of m that remains after a step.
      tau: added to sqrt(v); v starts at tau^2.
      beta2: v moves towards u^2 by (1 - beta2) u^2 per step.

    >>> import fedsum
    >>> fedsum.ServerOpt(fedsum.FedSUM(), Yogi(0.01)).label
    'FedSUM + Yogi'
    """

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        return v - (1 - self.beta2) * squared * torch.sign(v - squared)


@dataclass(frozen=True)
class Adam(_Decaying):
    """Adam on the server: v <- beta2 v + (1 - beta2) u^2;  m <- beta1 m + (1 - beta1) u;  x -= lr m / (sqrt(v) + tau).

    u is the negative change of the server's model x that the algorithm proposes; m and v are its moments.

    Args:
      lr: learning rate of the server.
      beta1: the share of m that remains after a step.
      tau: added to sqrt(v); v starts at tau^2.
      beta2: the share of v that remains after a step.

    >>> import fedsum
    >>> fedsum.ServerOpt(fedsum.FedSUM(), Adam(0.01)).label
    'FedSUM + Adam'
    """

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * squared


OPTIMISERS: dict[str, type[ServerOptimiser]] = {cls.__name__: cls for cls in (SGD, Adagrad, Yogi, Adam)}
"""optimisers that files can name"""
