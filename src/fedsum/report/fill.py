"""Tables and figures in Markdown pages, made from runs.

A page has blocks: HTML comments that start with `fedsum table` or `fedsum figure` and contain settings in TOML. `fill`
writes each table between its comment and `<!-- end -->`, and draws each figure into its file. Paths are relative to
the page.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..base.checks import InputError, nearest
from ..base.files import written_whole
from ..figures import save_small
from ..runs import Run, directions, read_runs
from .against_delay import against_delay, delays
from .markdown_grid import Curves
from .markdown_tables import at_rounds, curves_of, delay_table, final_values, rounds_to, wins
from .panels import panel_figure
from .sensitivity import against_setting, setting_table

_BLOCK = re.compile(r"<!-- fedsum (?P<what>\w+)\n(?P<settings>.*?)-->\n", re.DOTALL)
_END = "<!-- end -->"
_KINDS = {
    "final": ("rows", "columns", "values", "spread", "beside"),
    "wins": ("columns", "values", "reference"),
    "rounds_to": ("rows", "columns", "values", "targets", "x"),
    "at_rounds": ("rows", "values", "rounds"),
    "delay": (),
}
_COMMON = ("kind", "runs", "where", "rename")
_FIGURE = ("runs", "where", "rename", "file", "x", "y", "compare", "dash", "last", "title", "against")
_AGAINST = ("setting", "delay")


def _all_text(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


_FORMS: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    (
        ("kind", "spread", "beside", "reference", "x", "file", "compare", "dash", "title", "against"),
        lambda value: isinstance(value, str),
        "text in quotes",
    ),
    (("rows", "columns"), _all_text, "a list of facets"),
    (("values",), lambda value: _all_text(value) and bool(value), "a list of at least one metric"),
    (("runs", "y"), lambda value: isinstance(value, str) or (_all_text(value) and bool(value)), "a name, or a list"),
    (
        ("rounds",),
        lambda value: isinstance(value, list) and all(type(t) is int for t in value),
        "a list of whole numbers",
    ),
    (
        ("targets",),
        lambda value: isinstance(value, dict) and all(type(target) in (int, float) for target in value.values()),
        "a table with a number per task",
    ),
    (
        ("where",),
        lambda value: isinstance(value, dict) and all(isinstance(v, str) or _all_text(v) for v in value.values()),
        "a table with a label or a list of labels per facet",
    ),
    (
        ("rename",),
        lambda value: isinstance(value, dict) and all(isinstance(label, str) for label in value.values()),
        "a table with a new label per label",
    ),
)
"""settings, a check of their values, and what it accepts"""


def fill(page: str | Path, *, check: bool = False) -> list[int]:
    """Fills the blocks of a page. Returns the line numbers of the tables that were out of date.

    Args:
      page: a Markdown file.
      check: change nothing, and draw no figures.
    """
    page = Path(page)
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError("page", str(page), f"a Markdown file ({error.strerror})") from error
    filled, outdated, end = "", [], 0
    for block in _BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 1
        filled += text[end : block.end()]
        end = block.end()
        try:
            settings = tomllib.loads(block["settings"])
            if block["what"] == "figure":
                if not check:
                    _draw(settings, page.parent)
                continue
            if block["what"] != "table":
                raise InputError("block", block["what"], "'table' or 'figure'")
            close = text.find(_END, end)
            following = _BLOCK.search(text, end)
            if close < 0 or (following and following.start() < close):
                raise InputError("block", block["what"], f"a line {_END} after it")
            table = "\n".join(["", *_table(settings, page.parent), "", ""])
        except (InputError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"line {line} of page", page.name, str(error)) from error
        if table != text[end:close]:
            outdated.append(line)
        filled += table
        end = close
    if outdated and not check:
        with written_whole(page) as part:
            part.write_text(filled + text[end:], encoding="utf-8")
    return outdated


def _table(settings: Mapping[str, Any], folder: Path) -> list[str]:
    kind = str(settings.get("kind", "final"))
    if kind not in _KINDS:
        raise InputError("kind", kind, nearest(kind, _KINDS))
    _check(settings, (*_COMMON, *_KINDS[kind]))
    curves = _curves(settings, folder)
    rows, columns = settings.get("rows", ["algorithm"]), settings.get("columns", ["task"])
    values = settings.get("values", ["test_accuracy"])
    if kind == "delay":
        return delay_table(curves)
    metrics = {metric for group in curves.values() for run in group for row in run.rows for metric in row}
    for name in values:
        if name not in metrics and name.removeprefix("server_") not in metrics:
            raise InputError("values", name, nearest(name, metrics))
    if kind == "wins":
        return wins(curves, columns, values[0], settings.get("reference", "FedSUM"))
    if kind == "at_rounds":
        return at_rounds(curves, rows, values[0], settings.get("rounds", []))
    if kind == "rounds_to":
        return rounds_to(curves, rows, columns, values[0], settings.get("targets", {}), settings.get("x", "round"))
    beside = folder / settings["beside"] if "beside" in settings else None
    return final_values(curves, rows, columns, values, settings.get("spread", "none"), beside)


def _draw(settings: Mapping[str, Any], folder: Path) -> None:
    _check(settings, _FIGURE)
    curves = _curves(settings, folder)
    runs = [run for group in curves.values() for run in group]
    title, against = settings.get("title", ""), settings.get("against")
    if against is None:
        options = {name: settings[name] for name in ("x", "y", "compare", "dash", "last", "rename") if name in settings}
        figure = panel_figure(runs, title=title, **options)
    elif against == "delay":
        figure = against_delay(delays(runs), title)
    elif against == "setting" and (table := setting_table(runs)) is not None:
        metrics = {"y": settings["y"]} if "y" in settings else {}
        figure = against_setting(table, **metrics, title=title, stated=directions(runs))
    else:
        raise InputError(
            "against", against, f"{nearest(str(against), _AGAINST)}; 'setting' needs runs of several rates"
        )
    if "file" not in settings:
        raise InputError("file", None, "the PNG file to draw")
    save_small(figure, folder / settings["file"])


def _curves(settings: Mapping[str, Any], folder: Path) -> Curves:
    return curves_of(_runs(settings, folder), settings.get("where", {}), settings.get("rename"))


def _runs(settings: Mapping[str, Any], folder: Path) -> list[Run]:
    sources = settings.get("runs")
    if not sources:
        raise InputError("runs", sources, "a packed file or a folder with runs")
    return [
        run for source in ([sources] if isinstance(sources, str) else sources) for run in read_runs(folder / source)
    ]


def _check(settings: Mapping[str, Any], accepted: tuple[str, ...]) -> None:
    for name, value in settings.items():
        if name not in accepted:
            raise InputError("setting", name, nearest(name, accepted))
        for names, check, form in _FORMS:
            if name in names and not check(value):
                raise InputError(name, value, form)
