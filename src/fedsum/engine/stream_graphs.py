"""CUDA graphs with one branch per client: the clients of a chunk take their steps side by side.

A kernel of one client seldom fills a large GPU. Kernels of several branches run at the same time.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from .client_step import ClientStep
from .cohort_memory import CohortMemory

_MEMORY_SHARE = 0.5
"""share of the free memory for the activations and vectors of one chunk"""


class BranchStreams:
    """The streams and the memory pool of all graphs of a task. Its graphs never run at the same time."""

    def __init__(self) -> None:
        self._streams: list[torch.cuda.Stream] = []
        self._pool: Any = torch.cuda.graph_pool_handle()

    def warm_up(self, step: ClientStep, memory: CohortMemory) -> None:
        """One step of each client on its own stream.

        Compilation, cuDNN's search for algorithms, the workspaces of a stream's matrix products and the registration
        of the random generator are not allowed inside a capture.
        """
        current = torch.cuda.current_stream()
        for place, row in enumerate(memory.rows):
            stream = self._stream(place)
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                for _ in range(1 if place else 2):
                    step(row, memory.batches[0, place], memory.alive[0, place])
            current.wait_stream(stream)
        torch.cuda.synchronize()

    def capture(self, step: ClientStep, memory: CohortMemory) -> Callable[[], None]:
        """All steps of all clients as one graph: a branch leaves the graph's start per client, and all join at its end.

        After a failed capture, torch can be used as before it.
        """
        graph = torch.cuda.CUDAGraph()
        try:
            # thread_local: a checkpoint that is written in another thread may copy from the device meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                origin = torch.cuda.current_stream()
                for place, row in enumerate(memory.rows):
                    stream = self._stream(place)
                    stream.wait_stream(origin)
                    with torch.cuda.stream(stream):
                        for batch, of_step in zip(memory.batches, memory.alive, strict=True):
                            step(row, batch[place], of_step[place])
                for place in range(memory.size):
                    origin.wait_stream(self._stream(place))
        except BaseException:
            self._restore()
            raise
        return graph.replay

    def _restore(self) -> None:
        """Ends what a failed capture leaves open in torch's memory allocator and random generator."""
        device = torch.cuda.current_device()
        with suppress(Exception):  # raises if torch has ended it
            torch._C._cuda_endAllocateToPool(device, self._pool)
        try:
            torch.empty(1, device="cuda").uniform_()
        except Exception:
            # The generator is still in the mode of the capture, and refuses to draw outside of one.
            with suppress(Exception):
                torch.cuda.default_generators[device].graphsafe_set_state(torch.Generator("cuda"))
        self._pool = torch.cuda.graph_pool_handle()

    def chunk_limit(self, step: ClientStep, memory: CohortMemory) -> int:
        """How many clients fit in memory, from the measured memory of one client's step."""
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        self.warm_up(step, memory)
        vectors = 4 * memory.rows[0].x.nbytes
        per_client = torch.cuda.max_memory_allocated() - before + vectors
        free, _ = torch.cuda.mem_get_info()
        return max(1, int(_MEMORY_SHARE * free / per_client))

    def _stream(self, place: int) -> torch.cuda.Stream:
        while len(self._streams) <= place:
            self._streams.append(torch.cuda.Stream())  # type: ignore[no-untyped-call]
        return self._streams[place]
