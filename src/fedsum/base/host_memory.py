"""Memory of large tensors on a CPU."""

import os


def request_huge_pages() -> None:
    """Large tensors get huge pages from Linux, unless the environment says otherwise.

    Without them, a vector of 22 million parameters takes longer to allocate than to add up: the system maps every 4 kB
    of it separately. torch reads the variable when it allocates its first tensor, so that it must be set by then.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
