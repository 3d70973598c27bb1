"""Shared by all rooms: input checks, registries, keyed randomness, atomic files, metric names."""
