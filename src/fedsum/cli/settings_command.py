"""fedsum settings"""

from dataclasses import MISSING
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table as Printed

from ..spec import PARTS
from ..training import OPTIONS
from .console import Json, out, print_json

Markdown = Annotated[bool, typer.Option("--markdown", help="Print the Markdown table of the documentation.")]


def settings(
    as_json: Json = False,
    markdown: Markdown = False,
) -> None:
    """List the settings of a run, with the paper's symbol, default and description."""
    rows = setting_rows()
    if as_json:
        print_json(rows)
        return
    caption = "task, algorithm and schedule: a name, or a table with a name"
    print_settings(rows, "Settings of a run", caption, markdown)


def print_settings(rows: list[dict[str, str]], title: str, caption: str, markdown: bool) -> None:
    """Prints settings as a table, or as the Markdown table of the documentation."""
    heads = {"name": "setting", "symbol": "symbol", "default": "default", "doc": "what it is"}
    shown = [heads[key] for key in rows[0]]
    if markdown:
        cells = [[f"`{row['name']}`", *list(row.values())[1:]] for row in rows]
        lines = [f"| {' | '.join(line)} |" for line in (shown, ["---"] * len(shown), *cells)]
        out.print("\n".join(lines), soft_wrap=True, highlight=False, markup=False)
        return
    printed = Printed(title=title, caption=escape(caption))
    for head in shown:
        printed.add_column(head)
    for row in rows:
        printed.add_row(*map(escape, row.values()))
    out.print(printed)


def setting_rows() -> list[dict[str, str]]:
    """One row per setting. The table in docs/reference/settings.md is generated from these rows."""
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
