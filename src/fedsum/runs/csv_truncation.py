"""Truncation of a run's CSV files to the round of its checkpoint."""

import csv
import re
from collections.abc import Callable, Collection
from pathlib import Path

from ..base.files import written_whole

_INTEGER = re.compile("[0-9]{1,18}")


def truncate_after(
    path: Path, last_round: int, warn: Callable[[str], None], *, integers: Collection[str] = ("round",)
) -> list[str]:
    """Removes the rows after `last_round` from a CSV file with a column `round`, and returns its columns.

    A killed run leaves such rows if it wrote them after its last checkpoint. Its last line may be incomplete. Other
    unreadable lines are removed too. The original file is then copied to NAME.damaged.csv, and `warn` is called.

    Args:
      path: the file; it may be missing.
      last_round: rows of later rounds are removed.
      warn: called with each warning.
      integers: the columns that hold integers; a line with anything else there is unreadable.
    """
    if not path.exists():
        return []
    content = path.read_bytes()
    *lines, unfinished = content.decode("utf-8", errors="replace").split("\n")
    columns = _cells(lines[0]) if lines else []
    if not set(integers) <= set(columns) or not all(map(_readable, columns)):
        columns = []
    rows, damaged = ([lines[0]] if columns else []), 0
    for line in lines[len(rows) :]:
        cells = dict(zip(columns, _cells(line), strict=False)) if len(_cells(line)) == len(columns) else {}
        if not all(_INTEGER.fullmatch(cells.get(name, "")) for name in integers):
            damaged += 1
        elif int(cells["round"]) <= last_round:
            rows.append(line)
    if damaged and damaged == len(lines) - 1:  # no line fits the header, so the header is damaged as well
        columns, rows, damaged = [], [], len(lines)
    if damaged:
        copy = path.with_name(f"{path.stem}.damaged{path.suffix}")
        with written_whole(copy) as part:
            part.write_bytes(content)
        warn(f"{path.name}: {damaged} unreadable lines were removed; the original file was copied to {copy.name}")
    if damaged or unfinished or len(rows) < len(lines):
        with written_whole(path) as part:
            part.write_text("".join(f"{line}\n" for line in rows), encoding="utf-8")
    return columns


def _readable(name: str) -> bool:
    return name.isprintable() and "\N{REPLACEMENT CHARACTER}" not in name


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []
