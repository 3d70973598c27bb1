"""Rounds that depend on earlier rounds."""

from collections.abc import Callable, Iterator

from .schedule import Ids


class Replay:
    """The sets of active clients so far, per seed. A later round is reached by computing all rounds before it.

    So a schedule whose draws depend on its past is still a function of (seed, round): in any order of questions, and in
    a resumed run, which replays the rounds before its checkpoint.
    """

    def __init__(self) -> None:
        self._by_seed: dict[int, tuple[list[Ids], Iterator[Ids]]] = {}

    def active(self, seed: int, round: int, rounds: Callable[[int, list[Ids]], Iterator[Ids]]) -> Ids:
        """The set of this round. `rounds(seed, sets)` yields round after round; `sets` are the sets so far."""
        if seed not in self._by_seed:
            sets: list[Ids] = []
            self._by_seed[seed] = sets, rounds(seed, sets)
        sets, later = self._by_seed[seed]
        while len(sets) <= round:
            sets.append(next(later))
        return sets[round].copy()

    def __reduce__(self) -> tuple[type["Replay"], tuple[()]]:
        return Replay, ()  # a copy, also in another process, replays for itself
