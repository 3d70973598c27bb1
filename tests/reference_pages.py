"""The generated pages of docs/reference/: public names, commands and settings.

python tests/reference_pages.py           # names the pages that are out of date
python tests/reference_pages.py --write   # writes them
"""

import ast
import importlib
import inspect
import re
import sys
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path

import click
import typer

import fedsum.flower
from fedsum.algorithms import ALGORITHMS
from fedsum.cli.main import app
from fedsum.cli.settings_command import setting_rows
from fedsum.participation import SCHEDULES, Availability, Explicit, Sampled, Trace
from fedsum.tasks import Quadratic, text, vision

FOLDER = Path(__file__).parent.parent / "docs/reference"
NOTE = "<!-- Generated: python tests/reference_pages.py --write -->\n\n"
MODULES = ("fedsum", "fedsum.tasks", "fedsum.theory", "fedsum.report", "fedsum.flower")


def table(heads, rows):
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, ["---"] * len(heads), *cells)) + "\n"


def public_names():
    """(module, name, object) of every public name."""
    for module in map(importlib.import_module, MODULES):
        for name in sorted(module.__all__, key=str.casefold):
            yield module.__name__, name, getattr(module, name)


def summary(name, value):
    """The first paragraph of a docstring; for a constant or an alias, the string below its assignment."""
    if inspect.ismodule(value) or inspect.isclass(value) or inspect.isroutine(value):
        return " ".join((value.__doc__ or "").split("\n\n")[0].split())
    kind = "constant" if isinstance(value, (str, tuple, list, dict)) else "type, for annotations"
    return ": ".join(filter(None, (kind, described(name, value))))


def described(name, value):
    """The string below the assignment of a constant or an alias; empty if there is none."""
    modules = [module for key, module in sys.modules.items() if key.startswith("fedsum.")]
    for module in [module for module in modules if vars(module).get(name) is value]:
        statements = ast.parse(Path(module.__file__).read_text()).body
        for statement, below in pairwise(statements):
            names = [getattr(target, "id", "") for target in getattr(statement, "targets", ())]
            if name in names and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                return " ".join(below.value.value.split())
    return ""


def names_page():
    yield "# Public names\n\n" + NOTE
    yield (
        "The site has a page with signatures and examples for each module. In Python, `help(fedsum.FedSUM)` shows the "
        "same text.\n\n"
    )
    for module in MODULES:
        rows = [(f"`{name}`", summary(name, value)) for home, name, value in public_names() if home == module]
        yield f"## {module}\n\n" + table(["name", "what it is"], rows)


def commands_page():
    yield "# Command line\n\n" + NOTE
    yield (
        "`--help` after a command prints the same text. Invalid input gives one line on standard error and exit code "
        "2. A command that is stopped with Ctrl-C ends with exit code 130.\n\n"
    )
    yield from command_sections(typer.main.get_command(app), "fedsum")


def command_sections(command, name):
    context = click.Context(command, info_name=name)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            yield from command_sections(command.get_command(context, child), f"{name} {child}")
        return
    yield f"## {name}\n\n{unescaped(inspect.cleandoc(command.help))}\n\n"
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"<!-- not run: the usage of a command -->\n```text\n{name} {pieces}\n```\n\n"
    rows = [parameter_row(parameter, context) for parameter in command.params]
    if rows:
        yield table(["argument or option", "default", "what it does"], rows)


def unescaped(text):
    """Without the backslashes that rich needs before brackets."""
    return text.replace("\\[", "[")


def parameter_row(parameter, context):
    meaning = unescaped(parameter.help or "")
    # A bar in code would need a backslash, which GitHub hides and the site shows.
    metavar = parameter.make_metavar(context).replace("|", " or ")
    if parameter.param_type_name == "argument":
        return f"`{metavar}`", "required" if parameter.required else "", meaning
    flag = " / ".join([*parameter.opts, *parameter.secondary_opts])
    value = "" if parameter.is_flag else " " + metavar
    default = parameter.default
    known = default is not None and default is not False and not callable(default)
    return f"`{flag}{value}`", "required" if parameter.required else default if known else "", meaning


def settings_page():
    yield "# Settings\n\n" + NOTE
    yield (
        "A run is described by settings: in a TOML file, with `--set` on the command line, or as arguments of "
        "`fedsum.simulate`. [Runs and sweeps](../runs.md) shows files. `task`, `algorithm` and `schedule` are a name, "
        "or a table with a name and the fields below. [Symbols](../start/glossary.md) defines N, S, K, T, x and "
        "the others. If the default is empty, the setting is off or its description says what happens.\n\n"
    )
    yield "## Run\n\n" + table(
        ["setting", "symbol", "default", "what it is"],
        [(f"`{row['name']}`", row["symbol"], row["default"], row["doc"]) for row in setting_rows()],
    )
    yield (
        "More about [learning rates in files](../runs.md#settings-in-files), "
        "[early stopping](../runs.md#early-stopping), "
        "[`devices`, `deadline` and `enough`](../time.md), "
        "[`per_client`](../tasks.md#every-clients-loss-and-accuracy), [`precision` and `engine`](../engines.md) and "
        "[checkpoints](../runs.md#checkpoints).\n\n"
    )
    yield "## Task\n\nExamples are in [Tasks](../tasks.md), which also explains the partitions.\n\n"
    for title, make in (("quadratic", Quadratic.random), ("image sets", vision), ("text sets", text)):
        yield f"### {title[0].upper()}{title[1:]}\n\n" + table(["field", "default", "what it is"], parameters(make))
    yield (
        "## Algorithm\n\nAlgorithms that are not in this table have no fields. The page of each algorithm defines its "
        "symbols. An optimiser or a compressor is a table with a name and fields: see "
        "[server optimisers](../algorithms.md#server-optimisers) and "
        "[compressed uplinks](../algorithms.md#compressed-uplinks).\n\n"
    )
    rows = of_classes(ALGORITHMS)
    rows = ((f"[{name}](../algorithms/{name.strip('`')}.md) {field}", *cells) for name, field, *cells in rows)
    yield table(["algorithm and field", "default", "what it is"], rows)
    yield (
        "## Schedule\n\n[Every participation pattern](../patterns.md) has pictures of the schedules. `n`, the number "
        "of clients, need not be given in a file: it is the task's.\n\n"
    )
    others = {"Sampled": Sampled, "Trace": Trace.read, "Availability": Availability.read, "Explicit": Explicit}
    rows = ((f"{name} {field}", *cells) for name, field, *cells in of_classes({**SCHEDULES, **others}))
    yield table(["schedule and field", "default", "what it is"], rows)
    yield "## Deployment\n\nAll settings of a [Flower app](../deploy/README.md).\n\n"
    yield table(
        ["setting", "default", "what it is"],
        [(f"`{row['name']}`", row["default"], row["doc"]) for row in fedsum.flower.setting_rows()],
    )


def of_classes(classes):
    for name, cls in classes.items():
        for field, default, meaning in parameters(cls):
            if field != "`n`":
                yield f"`{name}`", field, default, meaning


def parameters(function):
    """(name, default, meaning) of each parameter; the meaning is from the docstring."""
    meanings = documented(function)
    if is_dataclass(function):
        for parent in reversed(function.__mro__):
            meanings = documented(parent) | meanings if parent is not object else meanings
        public = {field.name for field in fields(function) if field.init}
    for name, parameter in inspect.signature(function).parameters.items():
        if is_dataclass(function) and name not in public:
            continue
        default = "required" if parameter.default is parameter.empty else parameter.default
        yield f"`{name}`", "" if default is None else short(default), meanings.get(name, "")


def short(default):
    """A default. Options of an object that are off are left out, so that the column of the table is not too wide."""
    if not is_dataclass(default):
        return default
    given = [field.name for field in fields(default) if getattr(default, field.name) is not False]
    return f"`{type(default).__name__}({', '.join(f'{name}={getattr(default, name)!r}' for name in given)})`"


def documented(value):
    """The entries of "Args:" in a docstring, by name."""
    section = re.search(r"^Args:\n((?:  .*\n?|\n(?=  ))*)", inspect.cleandoc(value.__doc__ or ""), re.MULTILINE)
    entries = re.findall(r"^  (\w+): ((?:.*\n?)(?:    .*\n?)*)", section[1], re.MULTILINE) if section else []
    return {name: " ".join(meaning.split()) for name, meaning in entries}


PAGES = {"README.md": names_page, "commands.md": commands_page, "settings.md": settings_page}


def page(name):
    text = "".join(PAGES[name]()).rstrip("\n") + "\n"
    head, first, rest = text.partition("\n## ")
    return f"{head.rstrip()}\n\n{contents(first + rest)}\n{first}{rest}"


def contents(text):
    """Links to the sections, on one line."""
    names = re.findall(r"^## (.*)$", text, re.MULTILINE)
    anchors = [re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-") for name in names]
    return " · ".join(f"[{name}](#{anchor})" for name, anchor in zip(names, anchors, strict=True))


if __name__ == "__main__":
    for name in PAGES:
        path = FOLDER / name
        if "--write" in sys.argv:
            path.write_text(page(name))
        elif not path.exists() or path.read_text() != page(name):
            print(f"{path} is out of date")
