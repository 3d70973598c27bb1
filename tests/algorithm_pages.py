"""One page per algorithm in docs/algorithms/, made from docstrings, the table of facts and other pages.

python tests/algorithm_pages.py   # writes the pages and the table of facts
"""

import inspect
import re
import textwrap
from dataclasses import fields
from pathlib import Path

import algorithm_facts

from fedsum.algorithms import ALGORITHMS

DOCS = Path(__file__).parent.parent / "docs"
FOLDER = DOCS / "algorithms"
_HEAD = "<!-- python tests/algorithm_pages.py -->\n"
_FACTS = """
"Down" and "up" are the messages to and from an active client. Vectors have their names in the code; scalars are in
parentheses. "Summable": uplinks may be added up before they reach the server. "Bias" is the distance to the optimum
after a short run in which some clients are seldom active; it includes client drift. "Exact" is below 1e-9. See
[the table of all algorithms](../algorithms.md#facts).
"""


def pages():
    """The text of each page, by its file name."""
    rows = {line.split("`")[1]: line for line in algorithm_facts.lines() if "`" in line}
    head = [cell.strip() for cell in next(iter(algorithm_facts.lines())).split("|")[2:-1]]
    return {f"{name}.md": page(cls, head, rows[name]) for name, cls in ALGORITHMS.items()}


def page(cls, head, row):
    text, arguments, example = parts(cls)
    summary, *body = text.split("\n\n")
    cells = [cell.strip() for cell in row.split("|")[2:-1]]
    facts = [f"| {name} | {cell} |\n" for name, cell in zip(head, cells, strict=True) if name != "options"]
    sections = [
        f"# {cls.label}\n\n{_HEAD}\n{wrapped(summary)}",
        "\n".join(shown(paragraph) for paragraph in body),
        options(cls, arguments),
        f"## Facts\n\n{wrapped(_FACTS)}\n| | |\n|---|---|\n" + "".join(facts),
        listed("## Differences from the paper\n\n", differences(cls.label)),
        f"## Example\n\n```python\n{example}```\n",
        listed("## Results\n\n", results(cls.label)),
        f"Source: [{file_of(cls)}](../../{file_of(cls)}).\n",
    ]
    return "\n".join(section for section in sections if section)


def parts(cls):
    """The docstring's text, its arguments by name, and its example."""
    whole = inspect.cleandoc(cls.__doc__)
    whole, _, doctest = whole.partition("\n>>> ")
    text, _, arguments = whole.partition("\nArgs:\n")
    found = re.split(r"^  (\w+): ", arguments, flags=re.MULTILINE)[1:]
    named = {name: " ".join(doc.split()) for name, doc in zip(found[::2], found[1::2], strict=True)}
    lines = f">>> {doctest}".splitlines()
    code = "".join(
        (re.sub(r"^(>>>|\.\.\.) ?", "", line) if line.startswith((">>>", "...")) else f"# {line}") + "\n"
        for line in lines
    )
    code = re.sub(r"^((?:import|from) .*\n)(?!import|from|\n)", r"\1\n", code, flags=re.MULTILINE)
    name = cls.__name__
    # In the module of the algorithm its name needs no prefix.
    return text.strip(), named, re.sub(rf"(?<![\w.]){name}\(", f"fedsum.{name}(", code)


def shown(paragraph):
    """A paragraph of the docstring; equations are indented by four spaces there."""
    if paragraph.startswith("    "):
        return f"<!-- not run: a formula -->\n```text\n{textwrap.dedent(paragraph)}\n```\n"
    return wrapped(paragraph.replace("<", "&lt;"))


def wrapped(text, indent=""):
    return textwrap.fill(" ".join(text.split()), 120, subsequent_indent=indent, break_on_hyphens=False) + "\n"


def options(cls, arguments):
    meanings = {name: meaning.replace("|", r"\|") for name, meaning in arguments.items()}
    rows = [f"| `{f.name}` | {getattr(cls(), f.name)} | {meanings.get(f.name, '')} |\n" for f in fields(cls)]
    return "## Options\n\n| option | default | meaning |\n|---|---|---|\n" + "".join(rows) if rows else ""


def differences(label):
    """The bullets of docs/algorithms.md that name the algorithm."""
    section = algorithm_facts.PAGE.read_text().split("## Differences from the papers\n")[1].split("\n## ")[0]
    bullets = re.split(r"^- ", section, flags=re.MULTILINE)[1:]
    return [" ".join(b.split()) for b in bullets if re.search(rf"\*\*{re.escape(label)}\b[^-]", b)]


def results(label):
    """The pages with a table that has a row for the algorithm."""
    found = []
    for path in sorted((DOCS / "results").glob("*.md")):
        text = path.read_text()
        if path.stem != "README" and re.search(rf"^\| {re.escape(label)} \|", text, flags=re.MULTILINE):
            found.append(f"[{text.splitlines()[0].lstrip('# ')}](../results/{path.name})")
    return found


def listed(head, items):
    return head + "".join(wrapped(f"- {item}", "  ") for item in items) if items else ""


def file_of(cls):
    return f"src/fedsum/algorithms/{Path(inspect.getfile(cls)).name}"


if __name__ == "__main__":
    algorithm_facts.write()
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text)
