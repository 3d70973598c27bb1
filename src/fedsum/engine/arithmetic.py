"""How exact CUDA's arithmetic is, for the length of a run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def arithmetic(precision: str, deterministic: bool) -> Iterator[None]:
    """`precision`: "fp32", exact, or "tf32", rounded factors; `deterministic`: the same bits every time."""
    cudnn = torch.backends.cudnn
    before = (
        torch.get_float32_matmul_precision(),
        cudnn.allow_tf32,
        cudnn.benchmark,
        cudnn.deterministic,
        torch.are_deterministic_algorithms_enabled(),
    )
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
    # torch's own default rounds convolutions to tf32 but not matrix products; here both follow the option.
    _set(
        "high" if precision == "tf32" else "highest",
        precision == "tf32",
        not deterministic,
        deterministic,
        deterministic,
    )
    try:
        yield
    finally:
        _set(*before)


def _set(matmul: str, allow_tf32: bool, benchmark: bool, deterministic: bool, everywhere: bool) -> None:
    torch.set_float32_matmul_precision(matmul)
    cudnn = torch.backends.cudnn
    cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = allow_tf32, benchmark, deterministic
    torch.use_deterministic_algorithms(everywhere)
