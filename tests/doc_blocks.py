"""The code blocks and the commands of Markdown pages, and a check of commands that does not run them."""

import importlib
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import click
import typer

from fedsum.cli import reproduce_command
from fedsum.cli.main import app
from fedsum.runs import expand

ROOT = Path(__file__).parent.parent
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.*\S) -->")
OUTPUT = "<!-- output -->"
_PLACEHOLDER = "1"
"""replaces a word such as FOLDER or N in a sentence; it is a valid number too"""


@dataclass(frozen=True)
class Block:
    """A fenced block. A comment directly before it says why it is not run, or that the block above prints it."""

    line: int
    language: str
    text: str
    comment: str

    @property
    def reason(self):
        """Why the block is not run; None if it is run."""
        found = NOT_RUN.fullmatch(self.comment)
        return found["reason"] if found else None


def blocks(text):
    """The fenced blocks of a page. A block without a fence is refused: its language is unknown."""
    lines, found, i = text.splitlines(), [], 0
    in_comment = False
    while i < len(lines):
        line = lines[i]
        if line.lstrip().startswith("```"):
            end = next(j for j in range(i + 1, len(lines)) if lines[j].strip() == "```")
            before = lines[i - 1].strip() if i else ""
            comment = before if before.startswith("<!--") else ""
            assert not comment or comment == OUTPUT or NOT_RUN.fullmatch(comment), f"line {i}: {comment} has no reason"
            found.append(Block(i + 1, line.strip()[3:], "\n".join(lines[i + 1 : end]) + "\n", comment))
            i = end
        elif not in_comment:
            assert not (line.startswith("    ") and not lines[i - 1].strip()), f"line {i + 1}: a block without a fence"
        in_comment = in_comment or "<!--" in line
        in_comment = in_comment and "-->" not in line
        i += 1
    return found


def spans(text):
    """The inline code of a page."""
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    paragraphs = re.split(r"\n\s*\n|\n(?=[|\-*] ?)", text)
    return [" ".join(span.split()) for paragraph in paragraphs for span in re.findall(r"`([^`]+)`", paragraph)]


def commands(text):
    """The commands of a shell block, as lists of words, without comments."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = []
        for word in [*lexer, "&&"]:
            if word in ("&&", "||", ";", "|", "&"):
                if words:
                    yield words
                words = []
            else:
                words.append(word)


def check_command(words, *, complete=True):
    """Fails if a command has a subcommand, option or file that does not exist.

    Commands of fedsum are parsed by its own parser. Scripts must exist and contain their options. Unless `complete`,
    arguments may be missing or placeholders, as in a sentence that names a command.
    """
    if not complete:
        words = [_PLACEHOLDER if word.isupper() else word for word in words]
    if words[:3] == ["python", "-m", "fedsum"]:
        words = ["fedsum", *words[3:]]
    if words[0] == "fedsum":
        _check_fedsum(words[1:], complete)
    elif words[0] in ("python", "pytest"):
        files = [word for word in words[1:] if word.endswith(".py")]
        for file in files:
            assert (ROOT / file).exists(), f"{file}: no such file"
        if words[0] == "python" and files:
            source = (ROOT / files[0]).read_text()
            for option in (word for word in words if word.startswith("--")):
                assert f'"{option}"' in source, f"{files[0]} has no option {option}"


def _check_fedsum(words, complete):
    command = typer.main.get_command(app)
    context = click.Context(command, info_name="fedsum")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found, f"fedsum has no command {words[0]}"
        command, words = found, words[1:]
        context = click.Context(command, info_name=command.name, parent=context)
    if not words and not complete:
        return
    try:
        parsed = command.make_context(command.name, list(words), parent=context.parent)
    except (click.MissingParameter, click.BadOptionUsage):
        if complete:
            raise
        return
    except click.exceptions.Exit:  # --version, --help
        return
    if command.name == "reproduce" and parsed.params["name"] != _PLACEHOLDER:
        _check_experiment(command, parsed)


def _check_experiment(command, parsed):
    """Fails if the experiment or one of its settings does not exist. Runs are planned and not executed."""

    class Planned(Exception):
        pass

    def plan(table, folder, execution, more_json):
        assert expand(table, folder)
        raise Planned

    def partitions(table, title, folder):
        raise Planned

    from fedsum.experiments import drawing

    before = reproduce_command.run_table, drawing.draw_partitions
    reproduce_command.run_table, drawing.draw_partitions = plan, partitions
    try:
        command.invoke(parsed)
    except Planned:
        pass
    finally:
        reproduce_command.run_table, drawing.draw_partitions = before


def resolved(name):
    """The object with this dotted name, such as fedsum.tasks.leaf."""
    parts = name.split(".")
    found = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], start=2):
        found = getattr(found, part, None) or importlib.import_module(".".join(parts[:i]))
    return found
