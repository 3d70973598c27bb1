"""Comparison of methods over seeds: final values paired by seed, their differences with 95% intervals, one figure."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..base.checks import InputError, nearest
from ..base.metrics import FINAL_WINDOW, final_value, in_words
from ..figures import COLOURS, NotebookFigure, scale, styles
from ..runs import Run, planned_names, read_runs
from ..training import History
from .facets import Facets, all_seeds, facets, values
from .looks import look
from .table import column, metric_names

Source = str | Path | Run | History
"""a folder or packed file with runs, a run, or the result of simulate()"""
Seed = int | tuple[int, ...]
"""the seed of a run; if a sweep varies the seeds of the task or the schedule on their own, all seeds that differ"""
_LEVEL = 0.95
_FINISHED = "finished"
_PROBLEM = ("task", "schedule", "devices")
"""settings that make a problem: an easier one is no better method"""
_PANELS_PER_ROW = 3


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
    """The result of `fedsum.compare`. Differences are taken between methods on the same problem."""

    metric: str
    curves: Mapping[str, Mapping[str, Mapping[Seed, "pd.Series[float]"]]]
    """per problem, method and seed, the metric by round. A problem is a task, a schedule and devices; its label has the
    parts that differ, and is empty if there is one problem"""
    reference: str
    """differences are to this method; by default the first one"""
    excluded: Sequence[str] = ()
    """runs without a result, with the reason; they are in no mean"""

    @property
    def methods(self) -> list[str]:
        """The methods of all problems, in the order of the sweep or of the arguments."""
        return list(dict.fromkeys(method for methods in self.curves.values() for method in methods))

    def against(self, reference: str) -> "Comparison":
        """The same comparison, with differences to another method."""
        if reference not in self.methods:
            raise InputError("reference", reference, nearest(reference, self.methods))
        return replace(self, reference=reference)

    def final(self, method: str, problem: str = "") -> dict[Seed, float]:
        """The final value per seed; none if the method has no result on this problem."""
        if problem not in self.curves:
            raise InputError("problem", problem, nearest(problem, self.curves))
        curves = self.curves[problem].get(method, {}).items()
        return {seed: final_value(dict(zip(c.index.tolist(), c.tolist(), strict=True))) for seed, c in curves}

    def mean(self, method: str, problem: str = "") -> Interval:
        """The mean over all seeds of a method."""
        return Interval.of(list(self.final(method, problem).values()))

    def difference(self, method: str, problem: str = "") -> Interval:
        """The mean difference to the reference over the seeds that both have."""
        ours, theirs = self.final(method, problem), self.final(self.reference, problem)
        return Interval.of([ours[seed] - theirs[seed] for seed in ours if seed in theirs])

    @property
    def table(self) -> pd.DataFrame:
        """One row per problem and method: mean and interval of its final value, and of its difference to the reference.

        The column `problem` is left out if there is one problem.
        """
        rows = []
        for problem, methods in self.curves.items():
            for method in methods:
                mean, gap = self.mean(method, problem), self.difference(method, problem)
                row: dict[str, object] = {"problem": problem} if len(self.curves) > 1 else {}
                row |= {"method": method, "seeds": mean.n, "mean": mean.mean, "low": mean.low, "high": mean.high}
                gaps = {"difference": gap.mean, "difference_low": gap.low, "difference_high": gap.high}
                row |= {"pairs": gap.n}
                rows.append(row | (gaps if method != self.reference else dict.fromkeys(gaps, math.nan)))
        return pd.DataFrame(rows)

    def plot(self) -> Figure:
        """One panel per problem, over rounds: the mean over seeds, and a band from the lowest seed to the highest."""
        columns = min(len(self.curves), _PANELS_PER_ROW)
        rows = math.ceil(len(self.curves) / columns)
        width = 6.4 if columns == 1 else 4.8 * columns
        figure = NotebookFigure(figsize=(width, 4.2 * rows), layout="constrained")
        places = styles(self.methods, "algorithm")
        for number, (problem, methods) in enumerate(self.curves.items()):
            ax = figure.add_subplot(rows, columns, number + 1)
            self._draw(ax, methods, places)
            ax.set_title(problem)
        return figure

    def _draw(
        self, ax: Axes, methods: Mapping[str, Mapping[Seed, "pd.Series[float]"]], places: Mapping[str, int]
    ) -> None:
        drawn = []
        for number, (method, seeds) in enumerate(methods.items()):
            over_seeds = pd.concat(list(seeds.values()), axis=1, join="inner")
            mean, place = over_seeds.mean(axis=1), places[method]
            label = f"{method} ({len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'})"
            # The first method is drawn on top.
            ax.plot(mean.index, mean, label=label, zorder=10 - number, **look(place))
            if len(seeds) > 1:
                band = over_seeds.min(axis=1), over_seeds.max(axis=1)
                ax.fill_between(mean.index, *band, color=COLOURS[place], alpha=0.15, linewidth=0)
            drawn += over_seeds.to_numpy().ravel().tolist()
        ax.set_xlabel("round")
        ax.set_ylabel(in_words(self.metric))
        scale(ax, self.metric, [value for value in drawn if np.isfinite(value)])
        ax.legend(frameon=False)

    def __str__(self) -> str:
        table = self.table.to_string(index=False, float_format=lambda value: f"{value:.4g}")
        return f"{in_words(self.metric)}, mean over {FINAL_WINDOW}\n{table}"


@dataclass(frozen=True)
class _Result:
    """A run, its problem and its method."""

    problem: str
    method: str
    run: Run

    @property
    def label(self) -> str:
        return ", ".join(filter(None, (self.problem, self.method)))


def compare(sources: Sequence[Source], named: Mapping[str, Source | Sequence[Source]], by: str | None) -> Comparison:
    """The same function as `fedsum.compare`."""
    results = list(_results(sources, named))
    runs = [result.run for result in results]
    names = metric_names(runs)
    if by is not None and by not in names:
        raise InputError("by", by, nearest(by, names))
    metric = by or next(iter(names), "")
    curves: dict[str, dict[str, dict[Seed, pd.Series[float]]]] = {}
    excluded = []
    for result, seed in zip(results, _paired_seeds(results), strict=True):
        where, series = f"{result.label}, seed {seed}", column(result.run, metric)
        seeds = curves.setdefault(result.problem, {}).setdefault(result.method, {})
        if result.run.state != _FINISHED or not len(series):
            no_value = f"{metric} has no value" if result.run.state == _FINISHED else ""
            excluded.append(f"{where}: {no_value or result.run.reason or result.run.state}")
        elif seed in seeds:
            accepted = f"a second result of {where}; give the two names: compare(first=..., second=...)"
            raise InputError("runs", str(result.run.folder), accepted)
        else:
            seeds[seed] = series
    if not any(seeds for methods in curves.values() for seeds in methods.values()):
        raise InputError("runs", len(results), f"no finished run has a metric to compare; {'; '.join(excluded[:3])}")
    if all(len(methods) < 2 for methods in curves.values()):
        labels = list(dict.fromkeys(result.label for result in results))
        accepted = "at least two methods on one task and schedule: two folders, or a sweep over algorithms"
        raise InputError("runs", labels, accepted)
    finished = {problem: {name: seeds for name, seeds in of.items() if seeds} for problem, of in curves.items()}
    finished = {problem: methods for problem, methods in finished.items() if methods}
    comparison = Comparison(metric, finished, "", excluded)
    return replace(comparison, reference=comparison.methods[0])


def _paired_seeds(results: Sequence[_Result]) -> list[Seed]:
    """The seed by which each run is paired: its own, or more seeds where several runs of a method share theirs."""
    of_runs = [all_seeds(result.run) for result in results]
    own = [of_run[0] for of_run in of_runs]
    if len({(result.label, seed) for result, seed in zip(results, own, strict=True)}) == len(results):
        return list(own)
    differing = [place for place, part in enumerate(zip(*of_runs, strict=True)) if len(set(part)) > 1] or [0]
    return [of_run[differing[0]] if len(differing) == 1 else tuple(of_run[p] for p in differing) for of_run in of_runs]


def _results(sources: Sequence[Source], named: Mapping[str, Source | Sequence[Source]]) -> Iterator[_Result]:
    """The runs of all sources, with the names of their problems and methods, in the order of the sources."""
    groups: list[tuple[str, list[Run]]] = [("", [run for source in sources for run in _runs(source)])]
    for name, given in named.items():
        many = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        groups.append((name, [run for source in many for run in _runs(source)]))
    for name, runs in groups:
        if not runs:
            continue
        problems, methods = _problems(runs), _methods(runs)
        if not any(methods) and not name:
            methods = [curve.algorithm for curve in facets(runs)]
        curves = list(zip(problems, methods, strict=True))
        same = len({(all_seeds(run), curve) for run, curve in zip(runs, curves, strict=True)}) < len(runs)
        for curve in dict.fromkeys(curves):
            for run in (run for run, its_curve in zip(runs, curves, strict=True) if its_curve == curve):
                problem, method = curve
                parts = [name, method]
                # Runs with equal settings in several folders, such as two versions of the code, are told by folder.
                parts += [str(run.folder.parent.name or run.folder.name)] if same and not name else []
                yield _Result(problem, ": ".join(filter(None, parts)), run)


def _problems(runs: Sequence[Run]) -> list[str]:
    """Per run, the labels of its task, schedule and devices that differ between the runs."""
    configs = [{part: run.config[part] for part in _PROBLEM if part in run.config} for run in runs]
    same = {"algorithm": {"name": ""}}
    alone = [replace(run, config=same | config) for run, config in zip(runs, configs, strict=True)]
    return _labels(facets(alone), ("task", "schedule", "setting"))


def _methods(runs: Sequence[Run]) -> list[str]:
    """Per run, the labels of its algorithm and of other settings that differ between the runs."""
    alone = [replace(run, config={k: v for k, v in run.config.items() if k != "devices"}) for run in runs]
    return _labels(facets(alone), ("algorithm", "setting"))


def _labels(curves: Sequence[Facets], parts: Sequence[str]) -> list[str]:
    varying = [part for part in parts if len(values(curves, part)) > 1]
    return [", ".join(filter(None, (getattr(curve, part) for part in varying))) for curve in curves]


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
