"""Rounds that depend on earlier rounds."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Replay(Generic[T]):
    """What was computed for the rounds so far, per seed. A later round is reached by computing all rounds before it.

    So a schedule whose draws depend on its past is still a function of (seed, round): in any order of questions, and in
    a resumed run, which replays the rounds before its checkpoint.
    """

    def __init__(self) -> None:
        self._by_seed: dict[int, tuple[list[T], Iterator[T]]] = {}

    def at(self, seed: int, round: int, rounds: Callable[[int, list[T]], Iterator[T]]) -> T:
        """The result for this round. `rounds(seed, results)` yields round after round; `results` are those so far."""
        if seed not in self._by_seed:
            results: list[T] = []
            self._by_seed[seed] = results, rounds(seed, results)
        results, later = self._by_seed[seed]
        while len(results) <= round:
            results.append(next(later))
        return results[round]

    def __reduce__(self) -> tuple[type["Replay[T]"], tuple[()]]:
        return Replay, ()  # a copy, also in another process, replays for itself
