"""Shared by all packages: input checks, registries, keyed randomness, atomic files, metric names."""
