"""fedsum compare: final values paired by seed, with 95% intervals."""

import json
import math

import pandas as pd
import pytest
from scipy import stats
from test_extended_runs import SMALL

import fedsum
from fedsum import InputError, Run
from fedsum.base.metrics import final_value

FEDSUM = fedsum


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    task, schedule = fedsum.tasks.Quadratic.random(8, 3, noise=0.1), fedsum.Biased(8, group=2)
    for algorithm in (fedsum.FedAvg(), fedsum.FedSUM()):
        for seed in range(4 if algorithm.name == "FedSUM" else 3):
            name = folder / f"{algorithm.name},seed={seed}"
            options = {"rounds": 40, "local_steps": 2, "eta_l": 0.1, "seed": seed, "folder": name}
            fedsum.simulate(task, algorithm, schedule, **options)
    return folder


def finals(folder, algorithm, seeds=3):
    runs = [Run.read(folder / f"{algorithm},seed={seed}") for seed in range(seeds)]
    return [final_value({int(row["round"]): row["error"] for row in run.rows}) for run in runs]


def test_differences_are_paired_by_seed(folder):
    found = fedsum.compare(folder, by="error")
    assert found.methods == ["FedAvg", "FedSUM"]  # in the order of the folders
    assert found.difference("FedSUM").mean == -found.against("FedSUM").difference("FedAvg").mean
    found = found.against("FedSUM")
    gaps = [one - other for one, other in zip(finals(folder, "FedAvg"), finals(folder, "FedSUM"), strict=True)]
    test = stats.ttest_rel(finals(folder, "FedAvg"), finals(folder, "FedSUM")).confidence_interval(0.95)
    gap = found.difference("FedAvg")
    assert (gap.mean, gap.n) == (pytest.approx(sum(gaps) / 3), 3)
    assert (gap.low, gap.high) == pytest.approx((test.low, test.high))
    assert found.mean("FedSUM").mean == pytest.approx(sum(finals(folder, "FedSUM", 4)) / 4)  # all seeds, also unpaired
    assert len(found.plot().axes[0].lines) == 2
    assert "FedAvg" in str(found)


def test_folders_packed_files_and_histories_are_compared_alike(folder, tmp_path):
    packed = fedsum.pack(folder, tmp_path / "all.parquet")
    paths = sorted(folder.iterdir())
    expected = fedsum.compare(folder, by="error").table
    for sources in ([packed], paths, [Run.read(path) for path in paths]):
        assert fedsum.compare(*sources, by="error").table.round(4).equals(expected.round(4))
    named = fedsum.compare(ours=paths[3:], theirs=paths[:3], by="error")
    assert list(named.table["difference"])[1] == pytest.approx(expected["difference"][1] * -1)
    assert named.methods == ["ours", "theirs"]


def test_the_first_method_of_the_sweep_is_the_reference_unless_named(tmp_path, fedsum):
    axes = '[sweep]\nalgorithm = ["MIFA", "FedAvg", "FedSUM"]\nseed = [0, 1]\n'
    (tmp_path / "sweep.toml").write_text(SMALL + axes)
    assert fedsum("run", "sweep.toml")[0] == 0
    fedsum("pack", "runs/sweep")
    for source in ("runs/sweep", "runs/sweep.parquet"):
        shown = json.loads(fedsum("compare", source, "--by", "error", "--json")[1])
        assert (shown["reference"], list(shown["problems"][""])) == ("MIFA", ["MIFA", "FedAvg", "FedSUM"])
        code, out, _ = fedsum("compare", source, "--by", "error", "--reference", "FedAvg")
        assert (code, "difference to FedAvg" in out) == (0, True)
    shown = json.loads(fedsum("compare", "runs/sweep", "--reference", "FedAvg", "--by", "error", "--json")[1])
    assert [method["difference"] is None for method in shown["problems"][""].values()] == [False, True, False]
    apart = [f"runs/sweep/{name},seed=0" for name in ("FedSUM", "MIFA")]
    assert "difference to FedSUM" in fedsum("compare", *apart, "--by", "error")[1]
    assert "difference to MIFA" in fedsum("compare", *reversed(apart), "--by", "error")[1]
    code, _, error = fedsum("compare", "runs/sweep", "--reference", "FedAvgg")
    assert (code, "reference = 'FedAvgg': did you mean 'FedAvg'?" in error) == (2, True)
    code, _, error = fedsum("compare", "runs/sweep", "--reference", "mine")
    assert (code, "known: FedAvg, FedSUM, MIFA" in error) == (2, True)
    (tmp_path / "steps.toml").write_text(SMALL + '[sweep]\nalgorithm = ["FedAvg", "FedSUM"]\nlocal_steps = [1, 3]\n')
    assert fedsum("run", "steps.toml")[0] == 0
    code, _, error = fedsum("compare", "runs/steps", "--reference", "mine")
    assert (code, "; FedSUM, local_steps=1; FedSUM, local_steps=3" in error) == (2, True)


def test_seeds_of_tasks_are_seeds(tmp_path, fedsum):
    axes = '[sweep]\nalgorithm = ["FedSUM", "FedAvg"]\n"task.seed" = [0, 1, 2]\n'
    (tmp_path / "tasks.toml").write_text(SMALL + axes)
    (tmp_path / "both.toml").write_text(SMALL + axes + "seed = [0, 1]\n")
    both = [(seed, task_seed) for task_seed in range(3) for seed in range(2)]
    for name, keys in (("tasks", [0, 1, 2]), ("both", both)):
        assert fedsum("run", f"{name}.toml")[0] == 0
        found = FEDSUM.compare(f"runs/{name}", by="error")
        assert [list(seeds) for seeds in found.curves[""].values()] == [keys, keys]
        assert list(found.table["pairs"]) == [len(keys)] * 2
        assert fedsum("compare", f"runs/{name}")[0] == 0


def test_differences_are_within_a_schedule_and_devices(tmp_path, fedsum):
    axes = '[sweep]\nalgorithm = ["FedAvg", "FedSUM"]\nschedule = ["Biased", {name = "Cyclic", size = 2}]\n'
    (tmp_path / "sweep.toml").write_text(SMALL + axes + "seed = [0, 1]\n")
    assert fedsum("run", "sweep.toml")[0] == 0
    code, out, error = fedsum("compare", "runs/sweep", "--by", "error", "--reference", "FedAvg")
    assert (code, out.count("difference to FedAvg"), "Cyclic (Case 3): " in out) == (0, 2, True), error
    found = FEDSUM.compare("runs/sweep", by="error")
    assert (found.methods, found.reference) == (["FedAvg", "FedSUM"], "FedAvg")
    assert list(found.curves) == ["Biased", "Cyclic (Case 3)"]
    gaps = [found.final("FedSUM", "Biased")[seed] - found.final("FedAvg", "Biased")[seed] for seed in range(2)]
    assert found.difference("FedSUM", "Biased").mean == pytest.approx(sum(gaps) / 2)
    assert list(found.table["problem"]) == ["Biased"] * 2 + ["Cyclic (Case 3)"] * 2
    panels = found.plot().axes
    assert [ax.get_title() for ax in panels] == list(found.curves)
    colours = [[line.get_color() for line in ax.lines] for ax in panels]
    assert colours[0] == colours[1]
    shown = json.loads(fedsum("compare", "runs/sweep", "--by", "error", "--json")[1])["problems"]
    assert {name: list(rows) for name, rows in shown.items()} == dict.fromkeys(found.curves, found.methods)
    with pytest.raises(InputError, match="problem = '': known: Biased, Cyclic"):
        found.difference("FedSUM")
    for name in ("FedSUM,Biased", "FedAvg,Cyclic", "FedSUM,Cyclic"):  # one algorithm finished, in one schedule
        for seed in range(2):
            status = tmp_path / f"runs/sweep/{name},seed={seed}/status.toml"
            status.write_text(status.read_text().replace('"finished"', '"stopped"'))
    found = FEDSUM.compare("runs/sweep", by="error")
    assert (found.methods, list(found.curves)) == (["FedAvg"], ["Biased"])
    devices = 'algorithm = ["FedAvg", "FedSUM"]\ndevices = [{seconds_per_step = 1}, {seconds_per_step = 2}]\n'
    (tmp_path / "devices.toml").write_text(SMALL + "[sweep]\n" + devices)
    code, _, error = fedsum("run", "devices.toml")
    assert code == 0, error
    found = FEDSUM.compare("runs/devices", by="error")
    assert (found.methods, len(found.curves)) == (["FedAvg", "FedSUM"], 2)


def test_a_metric_without_a_value_is_the_reason(tmp_path, fedsum):
    (tmp_path / "sweep.toml").write_text(SMALL + '[sweep]\nalgorithm = ["FedAvg", "FedSUM", "MIFA"]\n')
    assert fedsum("run", "sweep.toml")[0] == 0
    path = tmp_path / "runs/sweep/FedSUM/metrics.csv"
    pd.read_csv(path).assign(error=math.nan).to_csv(path, index=False)
    code, _, error = fedsum("compare", "runs/sweep", "--by", "error")
    assert (code, "not compared: FedSUM, seed 0: error has no value" in error) == (0, True), error


def test_a_reference_without_a_result_on_one_schedule(tmp_path, fedsum):
    axes = '[sweep]\nalgorithm = ["FedAvg", "FedSUM"]\nschedule = ["Biased", {name = "Cyclic", size = 2}]\n'
    (tmp_path / "sweep.toml").write_text(SMALL + axes)
    assert fedsum("run", "sweep.toml")[0] == 0
    status = tmp_path / "runs/sweep/FedAvg,Cyclic/status.toml"
    status.write_text(status.read_text().replace('"finished"', '"stopped"'))
    code, out, error = fedsum("compare", "runs/sweep", "--by", "error")
    assert (code, "no result of FedAvg" in " ".join(out.split())) == (0, True), out
    assert "not compared: Cyclic (Case 3), FedAvg, seed 0: stopped" in error
    one = [f"runs/sweep/FedSUM,{name}" for name in ("Biased", "Cyclic")]
    code, _, error = fedsum("compare", *one)
    assert (code, "at least two methods on one task and schedule" in error) == (2, True)
    named = FEDSUM.compare(biased=one[0], cyclic=one[1], by="error")  # the caller's own names are compared
    assert (named.methods, list(named.curves)) == (["biased", "cyclic"], [""])


def test_diverged_runs_are_told_and_a_single_seed_has_no_interval(tmp_path, fedsum):
    axes = '[sweep]\n"algorithm, eta_l" = [["FedAvg", 0.05], ["FedAvg", 1e30], ["FedSUM", 0.05]]\n'
    (tmp_path / "sweep.toml").write_text(SMALL + axes)
    assert fedsum("run", "sweep.toml")[0] == 0
    code, out, error = fedsum("compare", "runs/sweep", "--json")
    found = json.loads(out)
    assert (code, len(found["excluded"]), "diverged by round 10" in error) == (0, 1, True)
    assert all(method["low"] is None for method in found["problems"][""].values())
    assert {(type(method["seeds"]), type(method["pairs"])) for method in found["problems"][""].values()} == {(int, int)}
    assert (tmp_path / "fedsum-compare.png").exists()
    assert "replaced" not in error
    assert (
        "note: the earlier fedsum-compare.png is replaced; --out names another file"
        in fedsum("compare", "runs/sweep")[2]
    )
    code, out, _ = fedsum("compare", "runs/sweep", "--by", "error", "--out", "other.pdf")
    assert (code, "difference to FedAvg" in out, (tmp_path / "other.pdf").exists()) == (0, True, True)
    assert ("no interval: one seed per method" in " ".join(out.split()), "in brackets" in out) == (True, False)


def test_comparisons_that_are_refused(folder, tmp_path, fedsum):
    one = folder / "FedSUM,seed=0"
    code, _, error = fedsum("compare", one)
    assert (code, "at least two methods" in error) == (2, True)
    with pytest.raises(InputError, match="by = 'eror': did you mean 'error'"):
        FEDSUM.compare(folder, by="eror")
    with pytest.raises(InputError, match="a second result of a, seed 0"):
        FEDSUM.compare(a=[one, one], b=folder / "FedAvg,seed=0")
    assert math.isnan(FEDSUM.compare(a=one, b=folder / "FedAvg,seed=1").difference("b").mean)  # no common seed
