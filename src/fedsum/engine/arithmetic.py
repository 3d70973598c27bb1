"""Precision and determinism of CUDA's arithmetic during a run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@contextmanager
def arithmetic(device: torch.device, precision: str, deterministic: bool) -> Iterator[None]:
    """Sets `precision`, "fp32" (exact) or "tf32" (rounded factors), and `deterministic`, the same bits every time.

    With "bf16", all that is not computed in bf16, such as evaluation, has the rounded factors of "tf32". Does nothing
    on a CPU. On CUDA it also makes the device the current one.
    """
    if device.type != "cuda":
        yield
        return
    cudnn, tf32 = torch.backends.cudnn, precision != "fp32"
    matmul, workspace = torch.get_float32_matmul_precision(), os.environ.get(_WORKSPACE)
    strict, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    # torch's default uses tf32 for convolutions but not for matrix products; here both follow `precision`.
    flags = cudnn.flags(
        enabled=True, benchmark=not deterministic, deterministic=deterministic or cudnn.deterministic, allow_tf32=tf32
    )
    with torch.cuda.device(device), flags:
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        if deterministic:
            os.environ[_WORKSPACE] = workspace or ":4096:8"  # cuBLAS requires it to be deterministic
            torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(matmul)
            torch.use_deterministic_algorithms(strict, warn_only=warns)
            if workspace is None:
                os.environ.pop(_WORKSPACE, None)
