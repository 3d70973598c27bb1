"""Shared by all packages: input checks, registries, keyed randomness, atomic files, metric names, memory of a CPU."""

from .host_memory import request_huge_pages

request_huge_pages()  # here, because every part of fedsum imports this package before it makes a tensor
