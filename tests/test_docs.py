"""Every block and every command of the documentation: executed here, or marked why not.

CONTRIBUTING.md describes the marks. The blocks of a page are executed in order, in one empty folder.
"""

import io
import re
import sys
import tomllib
from contextlib import redirect_stdout
from pathlib import Path

import click
import pytest
from doc_blocks import OUTPUT, ROOT, blocks, check_command, commands, resolved, spans

import fedsum as package
from fedsum import InputError
from fedsum.report import fill
from fedsum.runs import expand
from fedsum.spec import read_settings

PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)
# The blocks of these pages are run elsewhere: tests/test_flower_example.py runs those of the app's README.
OTHER_PAGES = [ROOT / "src/fedsum/flower/template/README.md", ROOT / "benchmarks/peers/README.md"]
RUN_HERE = ("python", "toml", "sh", "markdown")
RUN = {
    "rounds": 5,
    "local_steps": 1,
    "eta_l": 0.1,
    "task": "digits",
    "algorithm": "FedSUM",
    "schedule": {"name": "Uniform", "size": 2},
}
"""settings of a run, for TOML blocks that show only some of them"""


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(monkeypatch, tmp_path, tmp_path_factory):
    """A working folder with the runs that pages read: runs/sweep and others."""
    sweep = tmp_path_factory.getbasetemp() / "documented-sweep"
    if not sweep.exists():
        task = package.tasks.vision("digits", clients=10)
        for algorithm in (package.FedSUM(), package.FedAvg()):
            for seed in (0, 1):
                options = {"rounds": 10, "local_steps": 2, "eta_l": 0.1, "seed": seed, "eval_every": 5}
                run = sweep / f"{algorithm.name},seed={seed}"
                package.simulate(task, algorithm, package.Uniform(10, 3), folder=run, **options)
    for name in ("sweep", "algorithms", "before"):
        (tmp_path / "runs").mkdir(exist_ok=True)
        (tmp_path / "runs" / name).symlink_to(sweep)
    package.pack(sweep, tmp_path / "runs/after.parquet")
    package.pack(sweep, tmp_path / "sweep.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # a script imports the files of its own folder
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


def execute(block, fedsum):
    """Runs one block in the current folder; returns what it prints."""
    printed = io.StringIO()
    if block.language == "python":
        if first := re.match(r"# (\S+\.py)\n", block.text):
            Path(first[1]).write_text(block.text)
        with redirect_stdout(printed):
            exec(compile(block.text, "document", "exec"), {"__name__": "__main__"})
    elif block.language == "toml":
        check_settings(block.text)
    elif block.language == "markdown":
        Path("page.md").write_text(block.text)
        assert fill(Path("page.md")), "no table to fill"
    else:
        for words in commands(block.text):
            assert words[0] == "fedsum", f"{words[0]} is not run by this test: mark the block <!-- not run: why -->"
            code, out, error = fedsum(*words[1:])
            assert code == 0, error
            printed.write(out)
    return printed.getvalue()


def check_settings(text):
    """Fails unless TOML text has valid settings of a run or a sweep. `# name.toml` in the first line writes a file."""
    first = re.match(r"# (\S+\.toml)\n", text)
    path = Path(first[1] if first else "settings.toml")
    path.write_text(text)
    table = read_settings(path)
    assert expand({**RUN, **table}, Path("planned"))


def run_page(text, fedsum):
    """Runs the blocks of a page, and checks those that are marked."""
    printed = ""
    for block in blocks(text):
        if block.comment == OUTPUT:
            assert block.text.strip() in printed, f"line {block.line}: the block above does not print this"
        elif block.reason:
            check_marked(block)
        else:
            assert block.language in RUN_HERE, f"line {block.line}: not run, and not marked <!-- not run: why -->"
            printed = execute(block, fedsum)


def check_marked(block):
    """What can be checked of a block without running it."""
    if block.language == "python":
        compile(block.text, "document", "exec")
    elif block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "sh":
        for words in commands(block.text):
            check_command(words)
            if words[:2] == ["fedsum", "report"]:
                assert (ROOT / words[2]).exists(), f"{words[2]}: no such file"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_runs_or_says_why_not(page, folder, fedsum):
    run_page(page.read_text(), fedsum)


@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES], ids=name_of)
def test_commands_and_names_in_sentences_exist(page):
    for span in spans(page.read_text()):
        if re.match(r"(fedsum|python|pytest)( |$)", span):
            words = next(commands(span.replace("\\|", "-or-")), [])
            check_command(words, complete=False)
        elif name := re.match(r"fedsum(\.\w+)+(?=\(|$)", span):
            assert resolved(name[0]) is not None


def test_the_commands_of_examples_exist():
    for path in (ROOT / "examples").glob("*.py"):
        for line in re.findall(r"^    (fedsum .*)$", path.read_text(), re.MULTILINE):
            for words in commands(line):
                check_command(words)


def test_a_report_of_the_results(fedsum, tmp_path):
    """The second command of every results page, from the command line."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    code, out, error = fedsum("report", "docs/results/mistakes.parquet")
    assert (code, "report.html" in out) == (0, True), error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```text\nfedsum demo\n```\n", "not run, and not marked"),
        ("```sh\ntrue\n```\n", "true is not run by this test"),
        ("<!-- not run: -->\n```sh\nfedsum demo\n```\n", "has no reason"),
        ("\n    fedsum demo\n", "a block without a fence"),
        ("```sh\nfedsum list --jsn\n```\n", "No such option"),
        ("```python\n1 / 0\n```\n", "division by zero"),
        ("```python\nprint(1)\n```\n<!-- output -->\n```text\n2\n```\n", "does not print this"),
        ("```toml\nround = 3\n```\n", "did you mean 'rounds'"),
        ("<!-- not run: slow -->\n```sh\ntrue && fedsum runn x\n```\n", "no command runn"),
        ("<!-- not run: slow -->\n```sh\nfedsum run x.toml --job 2\n```\n", "No such option.*--job"),
        ("<!-- not run: slow -->\n```sh\nfedsum run\n```\n", "Missing parameter: file"),
        ("<!-- not run: slow -->\n```sh\nfedsum reproduce algoritms\n```\n", "did you mean 'algorithms'"),
        ("<!-- not run: slow -->\n```sh\nfedsum reproduce bias --set eta=3\n```\n", "eta"),
        ("<!-- not run: slow -->\n```sh\npython benchmarks/edge.py --dat x\n```\n", "has no option --dat"),
        ("<!-- not run: slow -->\n```sh\nfedsum report docs/results/no.parquet\n```\n", "no.parquet"),
        ("<!-- not run: slow -->\n```python\nimport\n```\n", "invalid syntax"),
    ],
)
def test_wrong_blocks_are_found(text, message, fedsum):
    with pytest.raises((AssertionError, InputError, click.UsageError, ZeroDivisionError, SyntaxError), match=message):
        run_page(text, fedsum)


def test_wrong_names_in_sentences_are_found():
    assert spans("a `fedsum\nrun` b\n\n```sh\n`x`\n```\n| `c` |") == ["fedsum run", "c"]
    with pytest.raises(ModuleNotFoundError):
        resolved("fedsum.tasks.leave")
    with pytest.raises(AssertionError, match="no such file"):
        check_command(["pytest", "tests/test_none.py"])
