"""The table of faults in docs/deploy/faults.md, from the tests that cover its rows.

A test's docstring says which row it covers: `Row: FAULT => BEHAVIOUR`. If several tests cover one row, one of them says
the behaviour, and the others say `Row: FAULT` alone. A row ends with its paragraph.

    python tests/flower_rows.py --write
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "deploy" / "faults.md"
SOURCES = (
    *sorted((ROOT / "tests").glob("test_flower*.py")),
    ROOT / "tests" / "test_trust.py",
    ROOT / "benchmarks" / "soak.py",
)
BEGIN, END = "<!-- rows of python tests/flower_rows.py -->", "<!-- end of rows -->"
_ROW = re.compile(r"Row: (?P<fault>.+?)(?: => (?P<behaviour>.+))?", re.DOTALL)


def rows():
    """{fault: (behaviour, [where it is tested])}"""
    found = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            docstring = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
            for paragraph in (docstring or "").split("\n\n"):
                match = _ROW.fullmatch(" ".join(paragraph.split()).removesuffix("."))
                if match:
                    behaviour, places = found.setdefault(match["fault"], ["", []])
                    assert not (behaviour and match["behaviour"]), f"two behaviours: {match['fault']}"
                    found[match["fault"]][0] = behaviour or match["behaviour"] or ""
                    name = path.stem if path.parent.name == "tests" else f"{path.parent.name}/{path.stem}"
                    if name not in places:
                        places.append(name)
    return found


def table():
    """The table in Markdown, sorted by fault."""
    lines = ["| fault | behaviour | tested in |", "|---|---|---|"]
    for fault, (behaviour, places) in sorted(rows().items(), key=lambda row: row[0].lower()):
        assert behaviour, f"no test says what happens: {fault}"
        lines.append(f"| {fault} | {behaviour} | {', '.join(f'`{place}`' for place in places)} |")
    return "\n".join(lines)


def page_with_table():
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page_with_table(), encoding="utf-8")
    else:
        print(table())
