"""A search for each algorithm's learning rate by successive halving.

All rates run for a third of the rounds, and the best third of each algorithm's rates goes on to the end. Runs are
extended, not repeated, so that a search costs about six full runs per algorithm with eleven rates. A shorter first
stage is misleading: until most clients have been active, FedSUM's sum is small, and too large rates look best.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..base.checks import InputError, integer, real
from ..base.metrics import Better, final_value
from ..base.toml_values import Table
from ..spec import SWEEP, assigned
from .run_reader import Run
from .search import SEED
from .sweep import PlannedRun, expand

_KEEP = 3
"""reduction factor: the best third of the rates continues, and the next stage has three times the rounds"""
_STAGES = 2
_ALGORITHM = "algorithm"


@dataclass(frozen=True)
class Search:
    """A search as a sweep over algorithms, rates and seeds."""

    table: Table
    """the settings of the last stage, with the sweep"""
    rate: str
    """the setting that is searched: eta_l, or eta_l.eta_0"""
    rates: Sequence[float]
    stages: Sequence[int]
    """rounds of each stage"""

    @classmethod
    def of(cls, table: Mapping[str, Any], span: int) -> "Search":
        """From a settings file: rates are its own rate times powers of two, `span` of them on both sides."""
        axes = dict(table.get(SWEEP, {}))
        for key in axes:
            if key not in (_ALGORITHM, SEED):
                raise InputError(f"{SWEEP}.{key}", axes[key], "a search for rates sweeps only algorithm and seed")
        rate, start = _rate(table.get("eta_l"))
        rates = [float(f"{start * 2.0**power:.4g}") for power in range(-integer("span", span, low=1), span + 1)]
        algorithms = axes.get(_ALGORITHM, [table.get(_ALGORITHM)])
        sweep = {_ALGORITHM: algorithms, rate: rates, SEED: axes.get(SEED, [table.get(SEED, 0)])}
        rounds = integer("rounds", table.get("rounds"), low=1)
        every = integer("eval_every", table.get("eval_every", 10), low=1)
        # A stage ends with an evaluation that the extended run has too.
        shares = [rounds // _KEEP ** (_STAGES - 1 - stage) for stage in range(_STAGES - 1)]
        stages = sorted({max(every, share // every * every) for share in shares if share < rounds} | {rounds})
        return cls({**table, SWEEP: sweep}, rate, rates, [stage for stage in stages if stage <= rounds])

    def planned(self, stage: int, folder: Path) -> list[PlannedRun]:
        """All runs of the search, with the rounds of a stage."""
        return expand({**self.table, "rounds": self.stages[stage]}, folder)

    @staticmethod
    def algorithm(run: PlannedRun) -> str:
        """The algorithm's part of a run's name, which also tells two settings of one algorithm apart."""
        return run.name.partition(",")[0]

    def scores(
        self, planned: Sequence[PlannedRun], runs: Mapping[str, Run], by: str, better: Better
    ) -> dict[str, dict[float, float]]:
        """Per algorithm and rate, the mean over seeds of the metric's final value; a diverged run is the worst."""
        values: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
        for run in planned:
            rounds = run.spec.options.rounds
            by_round = {int(row["round"]): row[by] for row in runs[run.name].rows if by in row}
            value = final_value({t: value for t, value in by_round.items() if t <= rounds})
            worst = runs[run.name].state == "diverged" or not math.isfinite(value)
            values[self.algorithm(run)][run.chosen[self.rate]].append(_WORST if worst else _sign(better) * value)
        return {a: {rate: statistics.fmean(v) for rate, v in rates.items()} for a, rates in values.items()}

    def survivors(self, scores: Mapping[str, Mapping[float, float]]) -> dict[str, list[float]]:
        """Per algorithm, the best third of its rates."""
        return {
            algorithm: sorted(rates, key=lambda rate: -rates[rate])[: math.ceil(len(rates) / _KEEP)]
            for algorithm, rates in scores.items()
        }

    def value(self, score: float, better: Better) -> float:
        """The metric's value from its score."""
        return math.nan if score == _WORST else _sign(better) * score

    def tuned_table(self, best: Mapping[str, float]) -> Table:
        """A file for further runs: every algorithm with its own rate."""
        algorithms = self.table[SWEEP][_ALGORITHM]
        pairs = list(zip(algorithms, best.values(), strict=True))
        table = {key: value for key, value in self.table.items() if key != SWEEP}
        if len(pairs) == 1:
            table = assigned(assigned(table, _ALGORITHM, pairs[0][0]), self.rate, pairs[0][1])
            return {**table, SWEEP: {SEED: self.table[SWEEP][SEED]}}
        axes = {f"{_ALGORITHM}, {self.rate}": [list(pair) for pair in pairs], SEED: self.table[SWEEP][SEED]}
        return {**{key: value for key, value in table.items() if key != _ALGORITHM}, SWEEP: axes}


_WORST = -math.inf


def _sign(better: Better) -> float:
    return -1.0 if better == "lower" else 1.0


def _rate(eta_l: Any) -> tuple[str, float]:
    """The setting that scales the rate, and its value in the file."""
    if isinstance(eta_l, Mapping) and "eta_0" in eta_l:
        return "eta_l.eta_0", real("eta_l.eta_0", eta_l["eta_0"], above=0)
    if isinstance(eta_l, Mapping | list) or eta_l is None:
        raise InputError("eta_l", eta_l, "a number, or a table with eta_0, around which rates are searched")
    return "eta_l", real("eta_l", eta_l, above=0)


def already_there(planned: PlannedRun) -> Run | None:
    """The run, if an earlier call has already taken it beyond this stage; None if the stage must be run."""
    run = Run.read_or_new(planned.folder)
    further = run.config.get("rounds", 0) > planned.spec.options.rounds
    reached = run.last.get("round", 0) >= planned.spec.options.rounds
    return replace(run, state="finished") if further and reached else None
