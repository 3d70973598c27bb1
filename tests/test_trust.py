"""Folders and packed files from elsewhere: no command imports the code that they name, unless the user trusts it."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedsum import InputError, experiments
from fedsum.cli import main
from fedsum.cli.resume_command import _trusted
from fedsum.report.against_delay import ERROR, delays
from fedsum.runs import read_runs
from fedsum.spec import code_confirmed_by
from fedsum.spec.imported import imported

OWN = """
from pathlib import Path
Path(__file__).with_name("executed").touch()
from fedsum.tasks import Quadratic
from fedsum import FedSUM, Uniform

def task(**fields):
    return Quadratic.random(4, 3)

class Mine(FedSUM):
    pass

def schedule(n):
    return Uniform(n, 2)
"""


def fedsum(monkeypatch, *command):
    """The command's exit code."""
    monkeypatch.setattr(sys, "argv", ["fedsum", *map(str, command)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


SETTINGS = """
rounds = 3
local_steps = 1
eta_l = 0.01
task = "{code}:task"
schedule = {{name = "{code}:schedule"}}
[sweep]
algorithm = ["{code}:Mine"]
seed = [0, 1]
"""


def own_runs(folder, monkeypatch, line="", replacement=""):
    """A sweep and its packed file, with code of their own; the code was not executed in this test.

    `replacement` takes the place of a line of the settings.
    """
    code = folder / f"code_{folder.name}.py"
    code.write_text(OWN)
    settings = folder / "run.toml"
    assert line in SETTINGS
    settings.write_text(SETTINGS.replace(line, replacement).format(code=code))
    assert fedsum(monkeypatch, "run", settings, "--folder", folder / "runs", "--json") == 0
    assert fedsum(monkeypatch, "pack", folder / "runs", "--out", folder / "runs.parquet") == 0
    for name in [name for name in sys.modules if name.startswith(f"fedsum_from_{code.stem}")]:
        del sys.modules[name]
    (folder / "executed").unlink()
    _trusted.cache_clear()
    return folder / "runs", folder / "runs.parquet"


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """A folder with a sweep and its packed file, as `own_runs` writes them."""
    own_runs(tmp_path, monkeypatch)
    return tmp_path


def test_reading_commands_never_import(foreign, monkeypatch, capsys):
    """Row: a run folder or a packed file of unknown origin names code to import => `fedsum resume` asks before it
    imports the code, or needs `--trust`. Commands that read runs never import it. A settings file is trusted.
    """
    for path in (foreign / "runs", foreign / "runs.parquet"):
        assert fedsum(monkeypatch, "show", path) == 0
        assert fedsum(monkeypatch, "show", path, "--json") == 0
        assert fedsum(monkeypatch, "report", path, "--out", foreign / "report.html") == 0
    assert fedsum(monkeypatch, "pack", foreign / "runs", "--out", foreign / "again.parquet") == 0
    (run, *_) = read_runs(foreign / "runs")
    run.config["task"]["clients"] = 4
    with pytest.raises(InputError, match="code that is not fedsum's"):
        delays([replace(run, rows=[{"round": 0, ERROR: 1.0}])])
    fedsum(monkeypatch, "reproduce", "bias", "--scale", "small", "--rounds", 1, "--folder", foreign / "runs.parquet")
    assert not (foreign / "executed").exists()


@pytest.mark.parametrize(
    ("line", "replacement"),
    [
        ('algorithm = ["{code}:Mine"]', 'algorithm = [{{name = "ServerOpt", algorithm = "{code}:Mine"}}]'),
        (
            'schedule = {{name = "{code}:schedule"}}',
            'schedule = {{name = "Sampled", size = 1, availability = {{name = "Sampled", size = 2, availability = '
            '{{name = "{code}:schedule"}}}}}}',
        ),
    ],
    ids=["algorithm", "schedule"],
)
def test_reading_commands_never_import_nested_code(line, replacement, tmp_path, monkeypatch, capsys):
    """Code that a wrapped algorithm or a nested schedule names.

    Row: a run folder or a packed file of unknown origin names code to import.
    """
    folder, packed = own_runs(tmp_path, monkeypatch, line, replacement)
    capsys.readouterr()
    for path in (folder, packed):
        assert fedsum(monkeypatch, "show", path) == 0
        assert fedsum(monkeypatch, "report", path, "--out", tmp_path / "report.html") == 0
        fedsum(monkeypatch, "compare", path)
        assert not (tmp_path / "executed").exists()
    assert ("Mine + Adam" in capsys.readouterr().out) == line.startswith("algorithm")


def test_resume_asks_before_it_imports(foreign, monkeypatch, capsys):
    """Row: a run folder or a packed file of unknown origin names code to import."""
    assert fedsum(monkeypatch, "resume", foreign / "runs") == 2
    assert "code that is not fedsum's; it was not imported. If you trust it, use --trust" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked = []
    for answer in (False, True):
        _trusted.cache_clear()
        monkeypatch.setattr("typer.confirm", lambda question, answer=answer, **_: asked.append(question) or answer)
        assert not (foreign / "executed").exists()
        assert fedsum(monkeypatch, "resume", foreign / "runs", "--json") == (0 if answer else 2)
    assert (foreign / "executed").exists()
    assert len(asked) == 1 + 3  # the second time once per name


def test_trust_is_given_on_the_command_line(foreign, monkeypatch):
    """Row: a run folder or a packed file of unknown origin names code to import."""
    assert fedsum(monkeypatch, "resume", foreign / "runs", "--trust", "--json") == 0
    assert (foreign / "executed").exists()


@pytest.mark.parametrize(
    "name",
    [
        "fedsum.cli:main",
        "fedsum.experiments.mistakes:DividedByM.merge",
        "fedsum.experiments.mistakes:",
        "subprocess:run",
    ],
)
def test_other_names_need_trust(name):
    with code_confirmed_by(lambda code: False), pytest.raises(InputError, match="it was not imported"):
        imported("task", name)


def test_resume_executes_no_function_of_python(tmp_path, monkeypatch, capsys):
    """Row: a run folder or a packed file of unknown origin names code to import."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_text(
        'rounds = 3\nlocal_steps = 1\neta_l = 0.1\nalgorithm = "FedSUM"\nschedule = {name = "Uniform", size = 1}\n'
        'task = {name = "os:system", command = "touch executed"}\n'
    )
    assert fedsum(monkeypatch, "resume", folder) == 2
    assert "task = 'os:system': code that is not fedsum's" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()


def test_fedsums_own_names_need_no_trust(tmp_path, monkeypatch):
    """Row: a run folder or a packed file of unknown origin names code to import."""
    (tmp_path / "run.toml").write_text(
        'rounds = 2\nlocal_steps = 1\neta_l = 0.01\ntask = {name = "quadratic", n = 4, d = 3}\n'
        'algorithm = "fedsum.experiments.mistakes:DividedByM"\nschedule = {name = "Uniform", size = 2}\n'
    )
    assert fedsum(monkeypatch, "run", tmp_path / "run.toml", "--folder", tmp_path / "run", "--json") == 0
    assert fedsum(monkeypatch, "resume", tmp_path / "run", "--json") == 0


def test_code_of_fedsums_own_experiments_needs_no_trust():
    folder = Path(experiments.__file__).parent
    names = {name for path in folder.glob("*.toml") for name in re.findall(r"fedsum\.[\w.]+:\w+", path.read_text())}
    assert len(names) > 10
    with code_confirmed_by(lambda name: False):
        for name in names:
            assert callable(imported("task", name))
        with pytest.raises(InputError, match="not fedsum's"):
            imported("task", "fedsum.experiments.demo:main")
