"""Runs pfl's harness as one of several processes that share a GPU: `torchrun ... one_gpu.py pfl_rounds.py ARGUMENTS`.

pfl's guide to fast simulations advises one to five processes per GPU. pfl 0.6.0 takes GPU number LOCAL_RANK, which a
machine with one GPU does not have, and adds up the processes' results with NCCL, which refuses two processes on one
GPU. Here every process takes GPU 0 and the results are added up with gloo. pfl itself is unchanged.
"""

import os
import runpy
import sys
from typing import Any

from torch import distributed


def share_gpu() -> None:
    """Must be called before pfl is imported: the import starts the process group."""
    os.environ["LOCAL_RANK"] = "0"  # the process's own rank is RANK
    start = distributed.init_process_group

    def start_with_gloo(backend: str, **options: Any) -> None:
        start(backend="gloo", **options)

    distributed.init_process_group = start_with_gloo


if __name__ == "__main__":
    share_gpu()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
