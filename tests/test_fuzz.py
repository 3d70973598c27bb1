"""Any file gives a valid run or an error message of one line, never a traceback."""

import random
import re
import sys
import warnings

import pytest

from fedsum import cli
from fedsum.cli import console as consoles

CONFIGS = [
    """rounds = 3
local_steps = 2
eta_l = {name = "InverseSqrt", eta_0 = 0.05, over = 10.0}
eta_g = 1.0
batch_size = 4
seed = 1
eval_every = 2
eval_last = 1
dtype = "float64"
task = {name = "quadratic", n = 6, d = 3, noise = 0.1, spread = 1.0, seed = 0}
algorithm = {name = "FedAU", cutoff = 5}
schedule = {name = "Markov", on = 0.5, off = 0.7}
checkpoint_rounds = 2
checkpoint_seconds = 1.5
""",
    """rounds = 2
local_steps = 1
eta_l = [0.1, 0.05]
eval_model = "clients"
engine = "loop"
device = "cpu"
precision = "fp32"
deterministic = false
[task]
name = "digits"
clients = 5
alpha = 0.5
partition = "dirichlet"
model = "logistic"
init = "kaiming"
[algorithm]
name = "FedAWE"
clip = 0.5
[schedule]
name = "Independent"
p = [0.5, 0.4, 0.3, 0.2, 1.0]
""",
    """rounds = 2
local_steps = 1
eta_l = 0.1
task = {name = "quadratic", n = 3, d = 2}
algorithm = "FedSUM-CR"
schedule = {name = "Trace", path = "trace.csv", clients = 3, repeat = true}
""",
    """rounds = 2
local_steps = 1
eta_l = 0.1
task = {name = "quadratic", n = 3, d = 2}
algorithm = {name = "FedSUMCR", printed_average = true}
schedule = {name = "Explicit", sets = [[0, 1], [], [2]], repeat = true}
""",
]
TRACES = [
    "round,client\n0,a\n0,b\n1,c\n2,a\n5,c\n",
    "time,client,what\n2024-01-01T00:00:00,x,1\n2024-01-01T00:10:00,y,2\n2024-01-01T01:00:00+02:00,x,3\n",
    'time,client\n0.5,"one, two"\n1.5,2\n7e2,3\n',
]
VALUES = [
    *("-1", "0", "1", "2", "0.5", "-0.0", "1e-300", "1e300", "1e400", "nan", "inf", "-inf", "0x10", "1_0", "null"),
    *("9223372036854775807", "9223372036854775808", "123456789012345678901234567890", "true", "false", '""', '"a"'),
    *('"FedSUM"', '"Uniform"', '"mnist"', r'"\u0000"', "[]", "[[]]", "[1]", '["a"]', "{}", '{name="Uniform"}'),
    *("{name=1}", "2024-01-01", "1979-05-27T07:32:00Z", '"../../etc"', '"a:b"', '"x.py:y"', '":"', '"os:system"'),
    *('"fedsum:FedSUM"', '"builtins:print"', "None"),
]
WORDS = [
    *("name", "n", "p", "size", "clients", "rounds", "eta_l", "eta_0", "seed", "sweep", "include", "task", "schedule"),
    *("on", "off", "environment", "eval_model", "K", "x"),
]
CHARACTERS = ["\x00", "é", "\ufeff", "\n", '"', "=", "[", "]", "{", "}", "#", "\\", ","]


def mutated(text, draw, values=VALUES, words=WORDS):
    """One to three changes: a character, a value, a word, a line."""
    for _ in range(draw.randint(1, 3)):
        if not text:
            return text
        kind = draw.randrange(7)
        at = draw.randrange(len(text))
        if kind == 0:
            text = text[:at] + draw.choice(CHARACTERS) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + draw.randint(1, 5) :]
        elif kind == 2:
            found = list(re.finditer(r"(?<=[=,\[] )?-?\d+\.?\d*|\"[^\"\n]*\"|true|false", text))
            if found:
                one = draw.choice(found)
                text = text[: one.start()] + draw.choice(values) + text[one.end() :]
        elif kind == 3:
            found = list(re.finditer(r"\b[A-Za-z_]\w*\b", text))
            if found:
                one = draw.choice(found)
                text = text[: one.start()] + draw.choice(words) + text[one.end() :]
        else:
            lines = text.split("\n")
            line = draw.randrange(len(lines))
            if kind == 4:
                lines.insert(line, draw.choice(lines))
            elif kind == 5:
                del lines[line]
            else:
                draw.shuffle(lines)
            text = "\n".join(lines)
    return text


@pytest.fixture
def outcome(monkeypatch, tmp_path, capsys):
    """The exit code of a command. Fails if there is a traceback or an error message of more than one line."""
    monkeypatch.chdir(tmp_path)
    for console in (consoles.out, consoles.err):
        monkeypatch.setattr(console, "_file", None)

    def quietly():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a divergence is a valid run
            cli.main()

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedsum", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            quietly()
        error = capsys.readouterr().err
        assert stop.value.code in (0, 1, 2), error
        if stop.value.code:
            assert re.fullmatch(r"error: [^\n]*\n", error), error
        return stop.value.code

    return run


def tame(text):
    """Reduces large numbers, because a run of a billion rounds is valid but takes too long."""
    return re.sub(r"\b(rounds|local_steps|batch_size|clients|n|d)(\s*=\s*)\d{5,}\b", r"\g<1>\g<2>4", text)


@pytest.mark.parametrize("part", range(10))
def test_mutated_configs(part, outcome, tmp_path):
    draw = random.Random(part)
    codes = []
    for number in range(70):
        text = tame(mutated(draw.choice(CONFIGS), draw))
        (tmp_path / "trace.csv").write_text("round,client\n0,0\n1,1\n2,2\n")
        (tmp_path / "config.toml").write_text(text)
        try:
            codes.append(outcome("run", "config.toml", "--folder", f"run{number}"))
        except BaseException:
            print(text)
            raise
    assert codes.count(0) > 2
    assert codes.count(2) > 20


@pytest.mark.parametrize("part", range(5))
def test_mutated_traces(part, outcome, tmp_path):
    draw = random.Random(part)
    codes = []
    values = [*VALUES, "2024-13-45", "9" * 400, "1e7", "-5", "٣", "NaN", "0x1"]
    for _ in range(60):
        text = mutated(draw.choice(TRACES), draw, values, ["round", "time", "client", ""])
        (tmp_path / "trace.csv").write_text(text)
        try:
            codes.append(
                outcome("delays", "trace.csv", *(["--round-length", "600"] if "time" in text else []), "--json")
            )
        except BaseException:
            print(text)
            raise
    assert codes.count(0) > 2
    assert codes.count(2) > 10
