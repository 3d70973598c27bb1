"""Quadratic losses, with known optimum, smoothness and noise."""

import copy
import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..base.checks import InputError, integer, real
from ..base.checks import seed as check_seed
from ..base.keyed import Purpose, rng
from .evaluation import ClientScores


class Quadratic:
    """f_i(x) = 1/2 (x - c_i)^T A_i (x - c_i), gradients with Gaussian noise, x^(0) = 0.

    Args:
      curvature: A, [N, d, d] symmetric positive semidefinite, or [N, d] for diagonal matrices.
      centers: c, [N, d].
      noise: sigma, with E||noise||^2 = sigma^2.
      source: the settings that made the task, if a file can hold them; `random` sets them.

    >>> Quadratic([[1.0], [3.0]], [[0.0], [4.0]]).optimum
    tensor([3.], dtype=torch.float64)
    """

    def __init__(
        self,
        curvature: ArrayLike | Tensor,
        centers: ArrayLike | Tensor,
        noise: float = 0.0,
        *,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        A, c = _tensor("curvature", curvature), _tensor("centers", centers)
        if c.dim() != 2 or not c.numel():
            raise InputError("centers of shape", tuple(c.shape), "[N, d], at least one client and dimension")
        n, d = c.shape
        if A.shape == (n, d):
            A = torch.diag_embed(A)
        if A.shape != (n, d, d):
            raise InputError("curvature of shape", tuple(A.shape), f"[{n}, {d}, {d}] or [{n}, {d}]")
        if not torch.allclose(A, A.mT):
            raise InputError("curvature", "an asymmetric matrix", "symmetric matrices")
        eigenvalues = torch.linalg.eigvalsh(A)
        if eigenvalues.min() < -1e-9 * eigenvalues.abs().max():
            raise InputError("curvature with eigenvalue", float(eigenvalues.min()), "at least 0")
        self.noise = real("noise", noise, low=0)
        self.L = float(eigenvalues.max())
        self.optimum = torch.linalg.lstsq(A.mean(0), (A @ c[..., None]).mean(0), driver="gelsd").solution[:, 0]
        self.curvature, self.centers = A, c
        self.source = source

    @classmethod
    def random(cls, n: int, d: int, *, noise: float = 0.0, spread: float = 1.0, seed: int = 0) -> "Quadratic":
        """A heterogeneous instance: curvatures between 0.5 and 1.5 in random directions, scattered centers.

        Args:
          n: N, the number of clients.
          d: the dimension of x.
          noise: sigma, the standard deviation of the gradient noise: E||noise||^2 = sigma^2.
          spread: standard deviation of the coordinates of the clients' minima; with a larger one, the clients
            differ more.
          seed: seed of the curvatures and minima.
        """
        integer("n", n, low=1)
        integer("d", d, low=1)
        check_seed(seed)
        draw = rng(seed, Purpose.PARTITION)
        q = np.linalg.qr(draw.standard_normal((n, d, d)))[0]
        A = (q * draw.uniform(0.5, 1.5, (n, 1, d))) @ q.transpose(0, 2, 1)
        centers = spread * draw.standard_normal((n, d))
        # The name "quadratic" in a file never means a subclass.
        source = {"name": "quadratic", "n": n, "d": d, "noise": noise, "spread": spread, "seed": seed}
        return cls((A + A.transpose(0, 2, 1)) / 2, centers, noise, source=source if cls is Quadratic else None)

    @property
    def n(self) -> int:
        return self.centers.shape[0]

    @property
    def d(self) -> int:
        return self.centers.shape[1]

    has_dropout = False

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        moved = copy.copy(self)
        for name in ("curvature", "centers", "optimum"):
            setattr(moved, name, getattr(self, name).to(device, dtype))
        return moved

    def init(self, seed: int) -> Tensor:
        return torch.zeros_like(self.optimum)

    def batches(self, seed: int, t: int, client: int, K: int, batch_size: int) -> Tensor:
        if self.noise == 0:
            return self.centers.new_zeros(K, self.d)
        # A "batch" of a quadratic is the noise of one gradient; its norm is sigma for every batch_size.
        draw = rng(seed, Purpose.BATCHES, t, client).standard_normal((K, self.d))
        return torch.as_tensor(draw * (self.noise / math.sqrt(self.d))).to(self.centers)

    def gradient(self, x: Tensor, client: int, batch: Tensor) -> Tensor:
        return self.curvature[client] @ (x - self.centers[client]) + batch

    def gradients(self, x: Tensor, clients: Tensor, batch: Tensor) -> Tensor:
        distance = (x - self.centers[clients])[..., None]
        return (self.curvature[clients] @ distance)[..., 0] + batch

    def exact_gradients(self, x: Tensor) -> Tensor:
        """The gradients of all f_i at x without noise, [N, d]."""
        return (self.curvature @ (x - self.centers)[..., None])[..., 0]

    def loss(self, x: Tensor) -> float:
        """f(x) = (1/N) sum_i f_i(x)."""
        return float(((x - self.centers) * self.exact_gradients(x)).sum(1).mean() / 2)

    def evaluate(self, x: Tensor) -> dict[str, float]:
        return {
            "train_loss": self.loss(x),
            "error": float((x - self.optimum).norm()),
            "gradient_norm_sq": float(self.exact_gradients(x).mean(0).square().sum()),
        }

    def evaluate_clients(self, x: Tensor) -> tuple[dict[str, float], ClientScores]:
        losses = ((x - self.centers) * self.exact_gradients(x)).sum(1) / 2
        return self.evaluate(x), {"loss": losses.double().cpu().numpy()}

    def constants(self) -> dict[str, float]:
        """L, sigma, Delta_f and F_0, as `fedsum.theory` names them."""
        x0 = self.init(0)
        return {
            "L": self.L,
            "sigma": self.noise,
            "Delta_f": self.loss(x0) - self.loss(self.optimum),
            "F_0": float(self.exact_gradients(x0).square().sum(1).mean()),
        }

    def model(self, x: Tensor) -> Any:
        """The model of a quadratic is the vector itself."""
        return x


def _tensor(field: str, values: ArrayLike | Tensor) -> Tensor:
    try:
        tensor = torch.as_tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(field, values, "an array of numbers") from None
    if not tensor.isfinite().all():
        raise InputError(field, "an array with NaN or infinity", "finite numbers")
    return tensor
