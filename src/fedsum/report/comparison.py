"""Comparison of methods over seeds: final values paired by seed, their differences with 95% intervals, one figure."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..base.checks import InputError, nearest
from ..base.metrics import FINAL_WINDOW, final_value, in_words
from ..figures import COLOURS, NotebookFigure, scale
from ..runs import Run, planned_names, read_runs
from ..training import History
from .facets import FACETS, Facets, all_seeds, facets, styles, values
from .looks import look
from .table import column, metric_names

Source = str | Path | Run | History
"""a folder or packed file with runs, a run, or the result of simulate()"""
Seed = int | tuple[int, ...]
"""the seed of a run; if a sweep varies the seeds of the task or the schedule on their own, all seeds that differ"""
_LEVEL = 0.95
_FINISHED = "finished"


@dataclass(frozen=True)
class Interval:
    """A mean and its 95% interval (Student t); the interval is NaN for a single value.

    >>> Interval(mean=0.9, low=0.88, high=0.92, n=5).mean
    0.9
    """

    mean: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, sample: Sequence[float]) -> "Interval":
        if not sample:
            return cls(math.nan, math.nan, math.nan, 0)
        mean, n = statistics.fmean(sample), len(sample)
        if n == 1:
            return cls(mean, math.nan, math.nan, n)
        from scipy import stats

        half = float(stats.t.ppf((1 + _LEVEL) / 2, n - 1)) * statistics.stdev(sample) / math.sqrt(n)
        return cls(mean, mean - half, mean + half, n)


@dataclass(frozen=True)
class Comparison:
    """The result of `fedsum.compare`."""

    metric: str
    curves: Mapping[str, Mapping[Seed, "pd.Series[float]"]]
    """per method and seed, the metric by round; methods in the order of the sweep or of the arguments"""
    reference: str
    """differences are to this method; by default the first one"""
    excluded: Sequence[str] = ()
    """runs without a result, with the reason; they are in no mean"""

    def against(self, reference: str) -> "Comparison":
        """The same comparison, with differences to another method."""
        if reference not in self.curves:
            raise InputError("reference", reference, nearest(reference, self.curves))
        return replace(self, reference=reference)

    def final(self, method: str) -> dict[Seed, float]:
        """The final value per seed."""
        curves = self.curves[method].items()
        return {seed: final_value(dict(zip(c.index.tolist(), c.tolist(), strict=True))) for seed, c in curves}

    def mean(self, method: str) -> Interval:
        """The mean over all seeds of a method."""
        return Interval.of(list(self.final(method).values()))

    def difference(self, method: str) -> Interval:
        """The mean difference to the reference over the seeds that both have."""
        ours, theirs = self.final(method), self.final(self.reference)
        return Interval.of([ours[seed] - theirs[seed] for seed in ours if seed in theirs])

    @property
    def table(self) -> pd.DataFrame:
        """One row per method: mean and interval of its final value, and of its difference to the reference."""
        rows = []
        for method in self.curves:
            mean, gap = self.mean(method), self.difference(method)
            row = {"method": method, "seeds": mean.n, "mean": mean.mean, "low": mean.low, "high": mean.high}
            gaps = {"difference": gap.mean, "difference_low": gap.low, "difference_high": gap.high}
            row |= {"pairs": gap.n}
            rows.append(row | (gaps if method != self.reference else dict.fromkeys(gaps, math.nan)))
        return pd.DataFrame(rows)

    def plot(self) -> Figure:
        """All methods over rounds: the mean over seeds, and a band from the lowest seed to the highest."""
        figure = NotebookFigure(figsize=(6.4, 4.2), layout="constrained")
        ax = figure.subplots()
        places, drawn = styles(list(self.curves), "algorithm"), []
        for number, (method, seeds) in enumerate(self.curves.items()):
            over_seeds = pd.concat(list(seeds.values()), axis=1, join="inner")
            mean, place = over_seeds.mean(axis=1), places[method]
            # The first method is drawn on top.
            ax.plot(mean.index, mean, label=f"{method} ({len(seeds)} seeds)", zorder=10 - number, **look(place))
            if len(seeds) > 1:
                band = over_seeds.min(axis=1), over_seeds.max(axis=1)
                ax.fill_between(mean.index, *band, color=COLOURS[place], alpha=0.15, linewidth=0)
            drawn += over_seeds.to_numpy().ravel().tolist()
        ax.set_xlabel("round")
        ax.set_ylabel(in_words(self.metric))
        scale(ax, self.metric, [value for value in drawn if np.isfinite(value)])
        ax.legend(frameon=False)
        return figure

    def __str__(self) -> str:
        table = self.table.to_string(index=False, float_format=lambda value: f"{value:.4g}")
        return f"{in_words(self.metric)}, mean over {FINAL_WINDOW}\n{table}"


@dataclass(frozen=True)
class _Result:
    """A run and its method."""

    method: str
    run: Run


def compare(sources: Sequence[Source], named: Mapping[str, Source | Sequence[Source]], by: str | None) -> Comparison:
    """The same function as `fedsum.compare`."""
    results = list(_results(sources, named))
    runs = [result.run for result in results]
    names = metric_names(runs)
    if by is not None and by not in names:
        raise InputError("by", by, nearest(by, names))
    metric = by or next(iter(names), "")
    curves: dict[str, dict[Seed, pd.Series[float]]] = {result.method: {} for result in results}
    excluded = []
    for result, seed in zip(results, _paired_seeds(results), strict=True):
        where, series = f"{result.method}, seed {seed}", column(result.run, metric)
        if result.run.state != _FINISHED or not len(series):
            excluded.append(f"{where}: {result.run.reason or result.run.state}")
        elif seed in curves[result.method]:
            accepted = f"a second result of {where}; give the two names: compare(first=..., second=...)"
            raise InputError("runs", str(result.run.folder), accepted)
        else:
            curves[result.method][seed] = series
    if not any(curves.values()):
        raise InputError("runs", len(results), f"no finished run has a metric to compare; {'; '.join(excluded[:3])}")
    if len(curves) < 2:
        raise InputError("runs", list(curves), "at least two methods: two folders, or a sweep over algorithms")
    compared = {method: seeds for method, seeds in curves.items() if seeds}
    return Comparison(metric, compared, next(iter(compared)), excluded)


def _paired_seeds(results: Sequence[_Result]) -> list[Seed]:
    """The seed by which each run is paired: its own, or more seeds where several runs of a method share theirs."""
    of_runs = [all_seeds(result.run) for result in results]
    own = [of_run[0] for of_run in of_runs]
    if len({(result.method, seed) for result, seed in zip(results, own, strict=True)}) == len(results):
        return list(own)
    differing = [place for place, part in enumerate(zip(*of_runs, strict=True)) if len(set(part)) > 1] or [0]
    return [of_run[differing[0]] if len(differing) == 1 else tuple(of_run[p] for p in differing) for of_run in of_runs]


def _results(sources: Sequence[Source], named: Mapping[str, Source | Sequence[Source]]) -> Iterator[_Result]:
    """The runs of all sources, with the names of their methods, in the order of the sources."""
    groups: list[tuple[str, list[Run]]] = [("", [run for source in sources for run in _runs(source)])]
    for name, given in named.items():
        many = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        groups.append((name, [run for source in many for run in _runs(source)]))
    for name, runs in groups:
        if not runs:
            continue
        curves = facets(runs)
        varying = [facet for facet in FACETS if len(values(curves, facet)) > 1]
        same = len({(all_seeds(run), curve) for run, curve in zip(runs, curves, strict=True)}) < len(runs)
        for curve in dict.fromkeys(curves):
            for run in (run for run, its_curve in zip(runs, curves, strict=True) if its_curve == curve):
                parts = [name, _label(curve, varying or ([] if name else ["algorithm"]))]
                # Runs with equal settings in several folders, such as two versions of the code, are told by folder.
                parts += [str(run.folder.parent.name or run.folder.name)] if same and not name else []
                yield _Result(": ".join(filter(None, parts)), run)


def _label(curve: Facets, varying: Sequence[str]) -> str:
    return ", ".join(filter(None, (getattr(curve, facet) for facet in varying)))


def _runs(source: Source) -> list[Run]:
    if isinstance(source, Run):
        return [source]
    if isinstance(source, History):
        state = _FINISHED if source.diverged is None else "diverged"
        part = {"task": {"name": ""}, "schedule": {"name": ""}, "algorithm": {"name": source.label}}
        rows, seed = list(source.rows), source.seed
        return [Run(Path(source.label), state, int(rows[-1]["round"]), source.reason, {**part, "seed": seed}, rows)]
    # A sweep's folder is read in alphabetical order; the first value in its file is the reference.
    place = {Path(source) / name: number for number, name in enumerate(planned_names(Path(source)))}
    return sorted(read_runs(source), key=lambda run: place.get(run.folder, len(place)))
