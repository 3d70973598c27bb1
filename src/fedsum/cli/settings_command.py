"""fedsum settings"""

from dataclasses import MISSING
from typing import Annotated, Any

import typer
from rich.table import Table as Printed

from ..spec import PARTS
from ..training import OPTIONS
from .console import Json, out, print_json


def settings(
    as_json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table of the documentation.")] = False,
) -> None:
    """Every setting of a run, with the paper's symbol, its default and what it is."""
    rows = setting_rows()
    if as_json:
        print_json(rows)
        return
    if markdown:
        out.print(settings_table(), soft_wrap=True, highlight=False, markup=False)
        return
    printed = Printed(title="Settings of a run", caption="task, algorithm and schedule: a name, or a table with one")
    for head in ("setting", "symbol", "default", "what it is"):
        printed.add_column(head)
    for row in rows:
        printed.add_row(*row.values())
    out.print(printed)


def settings_table() -> str:
    """As Markdown."""
    lines = ["| setting | symbol | default | what it is |", "|---|---|---|---|"]
    for row in setting_rows():
        lines.append(f"| `{row['name']}` | {row['symbol']} | {row['default']} | {row['doc']} |")
    return "\n".join(lines)


def setting_rows() -> list[dict[str, str]]:
    """One row per setting, from where the settings are defined; the tables of the documentation too."""
    parts = [{"name": name, "symbol": "", "default": "required", "doc": doc} for name, doc in PARTS.items()]
    options = [
        {
            "name": option.name,
            "symbol": option.metadata["symbol"],
            "default": _default(option.default),
            "doc": option.metadata["doc"],
        }
        for option in OPTIONS
    ]
    return [*parts, *options]


def _default(value: Any) -> str:
    if value is MISSING:
        return "required"
    return "" if value is None else str(value).removeprefix("torch.")
