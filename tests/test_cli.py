"""The command line, for people and for scripts."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedsum import theory

PNG = b"\x89PNG"


def test_demo_writes_a_table_and_a_picture(fedsum, tmp_path):
    code, out, _ = fedsum("demo", "--rounds", 20)
    assert code == 0
    assert "FedSUM-CR" in out
    assert "test accuracy" in out
    assert str(tmp_path / "fedsum-demo.png") in out
    assert (tmp_path / "fedsum-demo.png").read_bytes()[:4] == PNG
    assert len(list(tmp_path.iterdir())) == 1


def test_demo_json(fedsum, tmp_path):
    code, out, _ = fedsum("demo", "quadratic", "--rounds", 300, "--json", "--out", "picture.pdf")
    assert code == 0
    result = json.loads(out)
    errors = {label: run["last"]["error"] for label, run in result["runs"].items()}
    family = max(errors.pop(label) for label in ("FedSUM-B", "FedSUM", "FedSUM-CR"))
    assert errors["FedAvg"] > 1e4 * family
    assert (tmp_path / "picture.pdf").read_bytes()[:4] == b"%PDF"


def test_list_counts_from_messages(fedsum):
    code, out, _ = fedsum("list", "--json")
    assert code == 0
    cards = {card["name"]: card for card in json.loads(out)}
    vectors = {name: (card["vectors_down"], card["vectors_up"]) for name, card in cards.items()}
    assert vectors == {
        "FedSUM": (2, 1),
        "FedSUMB": (1, 1),
        "FedSUMCR": (1, 1),
        "FedAvg": (1, 1),
        "SCAFFOLD": (2, 1),
        "MIFA": (1, 1),
        "FedVARP": (1, 1),
        "FedAU": (1, 1),
        "FedAWE": (1, 1),
        "FOCUS": (1, 1),
        "FedDyn": (1, 1),
        "FedProx": (1, 1),
        "FedStale": (1, 1),
        "KnownFedAvg": (1, 1),
        "FedAvgM": (1, 1),
        "FedAdagrad": (1, 1),
        "FedYogi": (1, 1),
        "FedAdam": (1, 1),
        "FedExP": (1, 1),
        "FedCM": (2, 1),
        "SCAFFOLDM": (2, 1),
        "AmplifiedFedAvg": (1, 1),
        "AmplifiedSCAFFOLD": (2, 2),
        "FedBuff": (1, 1),
        "FedAsync": (1, 1),
        "ServerOpt": (1, 1),
        "Compressed": (2, 1),
    }
    assert cards["FedSUMCR"]["client_state"] == ["h", "z", "(E)"]
    assert {name for name, card in cards.items() if not card["summable"]} == {"MIFA", "FedVARP", "FedAU", "FedStale"}
    code, out, _ = fedsum("list")
    assert code == 0
    assert all(card["label"] in out for card in cards.values())
    assert cards["FedSUMCR"]["label"] == "FedSUM-CR"


@pytest.mark.parametrize("pattern", ["uniform", "independent", "sine", "cyclic", "reshuffled", "biased", "markov"])
def test_delays_of_every_pattern(fedsum, tmp_path, pattern):
    code, out, _ = fedsum("delays", pattern, "--rounds", 60, "--n", 30, "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["clients"], found["rounds"]) == (30, 60)
    assert 0 < found["tau_avg"] <= found["tau_max"] <= found["tau_max_bound"]
    constants = {"L": 1.0, "N": 30, "K": 10, "T": 60, "tau_max": found["tau_max"], "tau_avg": found["tau_avg"]}
    assert found["best_eta_l"] == theory.best_rates(eta_g=1.0, sigma=1.0, Delta_f=1.0, **constants).eta_l
    assert 0 < found["best_eta_l"] <= found["largest_eta_l"]
    assert found["eta_g"] == pytest.approx(found["tau_max"] ** -0.5)
    assert (tmp_path / "fedsum-delays.png").read_bytes()[:4] == PNG


def test_delays_of_groups_that_take_turns(fedsum):
    code, out, _ = fedsum("delays", "periodic", "--rounds", 60, "--n", 30, "--size", 5, "--groups", 3, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["tau_max_bound"] is None
    assert found["tau_max"] >= 20  # the two other groups' turns of 10 rounds


def test_delays_of_a_trace(fedsum, tmp_path):
    (tmp_path / "seen.csv").write_text("time,client\n0,anna\n10,bert\n70,anna\n130,anna\n")
    code, out, _ = fedsum("delays", "seen.csv", "--round-length", 60)
    assert code == 0
    assert "client bert, 1 rounds; 0 never active" in out
    assert "no lemma for this pattern" in out
    code, out, _ = fedsum("delays", "seen.csv", "--round-length", 60, "--json")
    assert json.loads(out)["tau_max"] == 2


def test_the_picture_of_a_trace_shows_names(fedsum, tmp_path, monkeypatch):
    from fedsum import figures

    drawn = []
    monkeypatch.setattr(figures, "save", lambda figure, path: drawn.append(figure) or path)
    lines = [f"{number},client-{number:03}\n" for number in range(60)]
    (tmp_path / "few.csv").write_text("round,client\n0,bert\n1,$a_b$\n")
    (tmp_path / "many.csv").write_text("round,client\n" + "".join(lines))
    for name in ("few.csv", "many.csv"):
        assert fedsum("delays", name)[0] == 0
    few, many = ([tick.get_text() for tick in figure.axes[0].get_yticklabels()] for figure in drawn)
    assert few == ["$a_b$", "bert"]
    assert (many[0], many[-1], len(many) <= 30) == ("client-000", "client-059", True)
    drawn[0].canvas.draw()


def test_delays_of_a_settings_file(fedsum, tmp_path):
    text = 'rounds = 9\nlocal_steps = 2\neta_l = 0.1\nalgorithm = "FedSUM"\ntask = {name = "quadratic", n = 7, d = 2}\n'
    (tmp_path / "tune.toml").write_text(text + 'schedule = {name = "Cyclic", size = 2}\n[sweep]\neta_l = [0.1, 0.2]\n')
    code, out, error = fedsum("delays", "tune.toml", "--rounds", 40, "--json")
    assert code == 0, error
    found = json.loads(out)
    same = json.loads(fedsum("delays", "cyclic", "--n", 7, "--size", 2, "--rounds", 40, "--json")[1])
    assert found.pop("schedule") == "Cyclic of tune.toml"
    assert (found["K"], same.pop("K")) == (2, 10)
    rates = ("eta_l", "eta_g", "best_eta_l", "largest_eta_l", "advice")  # which depend on K
    kept = {name for name in same if name not in ("schedule", *rates)}
    assert {name: found[name] for name in kept} == {name: same[name] for name in kept}
    assert json.loads(fedsum("delays", "tune.toml", "--K", 10, "--rounds", 40, "--json")[1])["advice"] == same["advice"]
    code, _, error = fedsum("delays", "tune.toml", "--size", 3)
    assert (code, "size = 3: not together with a settings file: change it in tune.toml" in error) == (2, True)
    assert "a TOML file that can be read" in fedsum("delays", "none.toml")[2]
    assert "9 rounds" in fedsum("delays", "tune.toml")[1]  # those of the file


def test_delays_of_a_settings_file_name_the_clients(fedsum, tmp_path):
    (tmp_path / "own.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "from fedsum.tasks import Task\n"
        "def shops():\n"
        "    data = {name: (torch.ones(k, 2), torch.zeros(k, 1)) for k, name in ((4, 'anna'), (12, 'bert'))}\n"
        "    return Task(lambda: nn.Linear(2, 1), nn.functional.mse_loss, data)\n"
    )
    text = 'rounds = 9\nlocal_epochs = 2\nbatch_size = 4\neta_l = 0.1\nalgorithm = "FedSUM"\n'
    (tmp_path / "own.toml").write_text(
        text + 'task = {name = "own.py:shops"}\nschedule = {name = "Explicit", sets = [[0, 1], [0], [0], [0]]}\n'
    )
    code, out, error = fedsum("delays", "own.toml", "--rounds", 4)
    assert code == 0, error
    assert "client anna, 4 rounds" in out
    assert "client bert, 1 rounds; 0 never active" in out
    assert "(K = 4, L = 1" in out  # 2 epochs are 2 and 6 steps


def test_a_table_with_a_lemma(fedsum):
    code, out, _ = fedsum("delays", "cyclic", "--n", 10, "--size", 2, "--rounds", 50, "--K", 5, "--L", 2)
    assert code == 0
    assert "at most 10 expected (Case 3)" in out
    assert "K = 5, L = 2" in out
    assert "and at most 0.0025" in " ".join(out.replace("│", " ").split())  # 1/(10 * 4 * 5 * 2)


REFUSED = {
    "delays unifrom": "pattern = 'unifrom': did you mean 'uniform'?",
    "delays uniform --size 300": "size = 300: a whole number from 1 to 100 (n)",
    "delays uniform --p 0.5": "Uniform.p = 0.5: no such field",
    "delays independent --p 1.5": "p = 1.5: a probability in (0, 1]",
    "delays independent --p nan": "p = nan",
    "delays markov --on 1": "on = 1.0",
    "delays uniform --rounds 0": "rounds = 0",
    "delays uniform --seed -1": "seed = -1",
    "delays uniform --L -1": "L = -1.0",
    f"delays uniform --seed {2**64}": "seed = 18446744073709551616",
    "delays uniform --round-length 3": "only for a trace file",
    "delays uniform --out nowhere/x.png": "a file in an existing folder",
    "delays uniform --out x.exe": "a file ending in one of",
    "delays none.csv": "an existing file ending in .csv, .csv.gz, .jsonl, .jsonl.gz, .parquet, .pq",
    "delays bad.csv": "bad.csv line 3 = 'x': a round",
    "delays good.csv --p 0.3": "p = 0.3: not for a trace, which takes only n, round-length",
    "delays good.csv --size 3": "size = 3: a whole number from 1 to 1 (n)",
    "delays uniform --order oldest": "order = 'oldest': only for a trace file",
    "delays good.csv --n 0": "clients = 0",
    "delays good.csv --rounds 5": "round = 1: from 0 to 0",
    "delays": "Missing argument 'PATTERN'",
    "demo --rounds 0": "rounds = 0",
    "demo digit": "demo = 'digit': did you mean 'digits'?",
    "demo --rounds x": "'x' is not a valid",
    "demoo": "No such command 'demoo'. Did you mean 'demo'?",
    "demo --round 3": "--rounds",
}


@pytest.mark.parametrize(("line", "message"), REFUSED.items(), ids=REFUSED)
def test_bad_input_is_one_line_and_exit_code_2(fedsum, tmp_path, line, message):
    (tmp_path / "bad.csv").write_text("round,client\n0,a\nx,b\n")
    (tmp_path / "good.csv").write_text("round,client\n0,a\n")
    before = sorted(tmp_path.iterdir())
    code, out, err = fedsum(*line.split())
    assert code == 2
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert err.count("id you mean") < 2
    assert out == ""
    assert sorted(tmp_path.iterdir()) == before  # nothing half-written


def test_a_picture_that_cannot_be_finished_leaves_nothing(fedsum, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    def full(self, path, **options):
        path.write_bytes(PNG)
        raise OSError("No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    code, out, err = fedsum("delays", "cyclic", "--rounds", 5)
    assert (code, out, err) == (1, "", "error: No space left on device\n")
    assert list(tmp_path.iterdir()) == []


def test_no_arguments_show_the_help(fedsum):
    code, out, _ = fedsum()
    assert code == 0
    assert "demo" in out


def test_ctrl_c_is_no_traceback(fedsum, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["fedsum.experiments.demo"], "simulate", interrupted)
    code, _, err = fedsum("demo")
    assert code == 130
    assert "stopped" in err


def test_the_installed_command_runs():
    done = subprocess.run(
        [Path(sys.executable).parent / "fedsum", "list", "--json"], capture_output=True, text=True, check=True
    )
    assert len(json.loads(done.stdout)) == 27


def test_version_help_and_completion(fedsum):
    import fedsum as package

    code, out, _ = fedsum("--version")
    assert (code, out.strip()) == (0, f"fedsum {package.__version__}")
    for arguments in (("-h",), ("run", "-h"), ("flower", "certs", "-h")):
        code, out, _ = fedsum(*arguments)
        assert (code, "Usage" in out) == (0, True)
    assert "--install-completion" in fedsum("--help")[1]


def test_the_demos_have_pictures_of_their_own(fedsum, tmp_path):
    for name in ("digits", "quadratic"):
        code, out, _ = fedsum("demo", name, "--rounds", 1)
        rows = [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")]
        assert (code, rows[0]) == (0, "FedSUM")  # the row that one sees first
    assert {path.name for path in tmp_path.iterdir()} == {"fedsum-demo.png", "fedsum-demo-quadratic.png"}


def test_show_has_the_order_of_run_and_means_over_seeds(fedsum, tmp_path):
    text = """
rounds = 10
local_steps = 2
eta_l = 0.05
task = {name = "quadratic", n = 6, d = 3, noise = 0.1}
schedule = {name = "Biased", group = 2}
[sweep]
seed = [10, 2]
algorithm = ["FedSUM", "FedAvg"]
"""
    (tmp_path / "sweep.toml").write_text(text)
    ran = json.loads(fedsum("run", "sweep.toml", "--json")[1])["runs"]
    shown = json.loads(fedsum("show", "runs/sweep", "--json")[1])["runs"]
    assert list(shown) == list(ran) == [f"seed={s},{a}" for s in (10, 2) for a in ("FedSUM", "FedAvg")]
    code, out, _ = fedsum("show", "runs/sweep")
    assert (code, "means over seeds" in out, "*: the best algorithm" in " ".join(out.split())) == (0, True, True)
    assert "bold" not in out
    losses = re.findall(r"([\d.]+) ± [\d.e-]+ │ +(?:\* )?[\d.]+ ± ", out)
    assert (len(losses), {len(loss.replace(".", "").lstrip("0")) for loss in losses}) == (2, {3})
    starred = [line for line in out.split("means over seeds")[1].splitlines() if line.startswith("│") and "* " in line]
    assert len(starred) in (1, 2)
    for run, rounds in (("seed=10,FedSUM", 8), ("seed=2,FedSUM", 4)):
        folder = tmp_path / "runs/sweep" / run
        status = (folder / "status.toml").read_text()
        (folder / "status.toml").write_text(status.replace('"finished"', '"stopped"'))
        head, *rows = (folder / "metrics.csv").read_text().splitlines(keepends=True)
        reached = [row for row in rows if int(row.split(",")[0]) <= rounds]
        (folder / "metrics.csv").write_text("".join([head, *reached]))
    means = fedsum("show", "runs/sweep")[1].split("means over seeds")[1].splitlines()
    marked = {line.split("│")[1].strip(): "so far, round" in line for line in means if line[:1] == "│"}
    assert marked == {"FedSUM": True, "FedAvg": False}
    fedsum("run", "sweep.toml", "--set", "sweep.seed=[2]", "--folder", "one")
    assert "means over seeds" not in fedsum("show", "one")[1]


def test_settings_are_not_cut_in_a_narrow_table_of_means(fedsum, tmp_path, monkeypatch):
    from fedsum.cli.console import out
    from fedsum.cli.mean_tables import print_means
    from fedsum.runs import Run

    text = 'rounds = 2\neta_l = 0.05\ntask = {name = "quadratic", n = 6, d = 3, noise = 0.1}\n'
    text += 'schedule = {name = "Biased", group = 2}\n'
    axes = '[sweep]\nalgorithm = ["FedSUM", "FedAvg"]\nlocal_steps = [2, 10]\nseed = [0, 1]\n'
    (tmp_path / "sweep.toml").write_text(text + axes)
    assert fedsum("run", "sweep.toml")[0] == 0
    monkeypatch.setattr(out, "_width", 56)
    with out.capture() as captured:
        print_means({str(path): Run.read(path) for path in sorted((tmp_path / "runs/sweep").glob("*/"))})
    means = captured.get()
    settings = "".join(line.split("│")[2].strip() for line in means.splitlines() if line.startswith("│"))
    assert sorted(settings.split("local_steps=")) == sorted(["", "2", "10", "2", "10"])


def test_a_table_of_runs_fits_80_columns(fedsum, tmp_path, monkeypatch):
    from fedsum.cli import console
    from fedsum.cli.run_tables import print_runs
    from fedsum.runs import Run

    text = """
rounds = 10
local_steps = 2
task = {name = "digits", clients = 6}
schedule = {name = "Biased", group = 2}
[sweep]
algorithm = ["FedSUM", "FedAvg"]
eta_l = [0.2, 0.1]
seed = [0]
"""
    (tmp_path / "sweep.toml").write_text(text)
    assert fedsum("run", "sweep.toml")[0] == 0
    monkeypatch.setattr(type(console.out), "width", property(lambda self: 80))
    out = fedsum("show", "runs/sweep")[1].split("means over")[0]
    rows = [[cell.strip() for cell in line.split("│")[1:5]] for line in out.splitlines() if line.startswith("│")]
    assert rows == [[a, rate, "0", "finished"] for a in ("FedSUM", "FedAvg") for rate in ("0.2", "0.1")]
    assert max(map(len, out.splitlines())) <= 80
    monkeypatch.undo()
    folder = tmp_path / "runs/sweep"

    def printed(width):
        monkeypatch.setattr(console.out, "_width", width)
        with console.out.capture() as captured:
            print_runs(folder, {path.name: Run.read(path) for path in sorted(folder.glob("*/"))})
        return captured.get().split("means over")[0]

    assert "│FedSUM   │0.2  │0   │" in printed(70)  # only without padding
    names = [line.split("│")[1].strip().rstrip(",") for line in printed(59).splitlines() if line.startswith("│")]
    assert len(names) > 4  # the columns do not fit; a name wraps between settings
    assert {part for name in names for part in name.split(", ") if part} == {
        *("FedSUM", "FedAvg", "eta_l=0.2", "eta_l=0.1", "seed=0"),
    }
