"""Packed files: one Parquet file of many runs, read like the folder that it was packed from."""

import csv
import fcntl
import io
import json
import math
import random
import shutil
import tempfile
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeps import configured, toml, write_sweep

from fedsum import InputError, pack, read_runs
from fedsum.cli import running
from fedsum.experiments import experiment
from fedsum.report import final_table
from fedsum.report.page import payload
from fedsum.runs import best, expand, find_runs, not_begun
from fedsum.runs.execute import execute_quietly
from fedsum.spec import toml_text

FLOAT32 = 1e-6
WAYS = ("rounds", "communication", "last")
SWEEP = {
    "rounds": 12,
    "local_steps": 2,
    "eta_l": {"name": "InverseSqrt", "eta_0": 0.05},
    "eval_every": 4,
    "task": {"name": "quadratic", "n": 8, "d": 5, "noise": 0.1},
    "algorithm": "FedAvg",
    "schedule": {"name": "uniform", "size": 3},
    "sweep": {"eta_l.eta_0, eta_g": [[0.0005, 100.0], [0.05, 1.0]], "seed": [0, 1]},
}


def trained(table, folder):
    """A sweep's folder, trained in this process."""
    for run in expand(table, folder):
        execute_quietly(run.table, run.folder, shared=True, keep_checkpoint=False, tensorboard=False)
    (folder / "sweep.toml").write_text(toml_text(table))
    return folder


def write_rows(folder, rows, config=None, state="finished", reason=""):
    """A run with exactly these rows; a metric that a row does not have is an empty cell."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(toml(configured() if config is None else config))
    (folder / "status.toml").write_text(toml({"state": state, "round": len(rows), "reason": reason}))
    text, names = io.StringIO(), list(dict.fromkeys(["round", *(name for row in rows for name in row)]))
    csv.writer(text, lineterminator="\n").writerows([names])
    for number, row in enumerate(rows):
        cells = {"round": number} | row
        csv.writer(text, lineterminator="\n").writerows([[repr(cells[n]) if n in cells else "" for n in names]])
    (folder / "metrics.csv").write_text(text.getvalue())


def alike(one, other):
    """Equal; floats to float32."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) or isinstance(other, float):
        # The page has six digits: one unit in the last.
        return math.isclose(one, other, rel_tol=2e-5) or (math.isnan(one) and math.isnan(other))
    return one == other


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Finished, stopped and diverged runs, two seeds, a metric of one's own, NaN, and a run with no evaluation."""
    folder = tmp_path_factory.mktemp("pack") / "sweep"
    write_sweep(folder, algorithms=("FedSUM", "FedAWE"), schedules=("Uniform", "Biased"), rounds=12)
    own = [{"train_loss": 1.0, "mine": 0.5, "test_accuracy": 0.1}, {"train_loss": math.nan, "mine": math.inf}]
    write_rows(folder / "deeper/own", own, configured("MIFA"), "diverged", "train loss is nan")
    write_rows(folder / "begun", [], configured("MIFA", seed=1), "interrupted")
    return folder


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A grid search over two rates and two seeds, and the file that it was packed into."""
    folder = trained(SWEEP, tmp_path_factory.mktemp("searched") / "grid")
    return folder, pack(folder)


@pytest.fixture
def no_training(monkeypatch):
    """Counts what is trained."""
    started = []
    for name in ("run_all", "execute"):
        monkeypatch.setattr(running, name, lambda *arguments, **options: started.append(arguments))
    return started


# What is read is what was packed.

NUMBERS = st.one_of(st.integers(0, 2**62), st.floats(width=64), st.floats(0, 1))
ROWS = st.lists(st.dictionaries(st.sampled_from(["a", "b", "own metric", 'é,"']), NUMBERS), max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(ROWS, st.sampled_from(["finished", "diverged", "stopped", "failed"])), min_size=1, max_size=4)
)
def test_a_packed_run_is_the_run(runs):
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "runs"
        for seed, (rows, state) in enumerate(runs):
            write_rows(folder / f"seed={seed}", rows, configured(seed=seed), state, f"it is {state}")
        before, after = read_runs(folder), read_runs(pack(folder))
    assert [run.name for run in before] == [run.name for run in after]
    for one, other in zip(before, after, strict=True):
        assert (one.state, one.round, one.reason) == (other.state, other.round, other.reason)
        assert one.config == other.config
        assert [list(row) for row in one.rows] == [list(row) for row in other.rows]
        for mine, theirs in zip(one.rows, other.rows, strict=True):
            for name, value in mine.items():
                same = math.isclose(value, theirs[name], rel_tol=FLOAT32)
                assert same or (math.isnan(value) and math.isnan(theirs[name])), (name, value, theirs[name])


def test_numbers_keep_what_they_need(tmp_path):
    rows = [{"bytes": 2**60 + 1, "loss": 0.1, "error": 1e-60}, {"bytes": 3, "loss": math.nan, "error": 1e60}]
    write_rows(tmp_path / "one", rows)
    packed = pack(tmp_path / "one")
    types = {field.name: str(field.type) for field in pq.read_schema(packed)}
    assert types["round"] == "int32"
    assert (types["bytes"], types["loss"], types["error"]) == ("int64", "float", "double")
    (run,) = read_runs(packed)
    assert [row["bytes"] for row in run.rows] == [2**60 + 1, 3]
    assert [row["error"] for row in run.rows] == [1e-60, 1e60]
    assert math.isnan(run.rows[1]["loss"])


def test_report_show_and_tables_are_as_from_the_folder(sweep, fedsum, tmp_path):
    (sweep / "sweep.toml").write_text(toml_text(SWEEP))
    file = pack(sweep, tmp_path / "sweep.parquet")
    before, after = (payload(read_runs(path), "t", not_begun(path)) for path in (sweep, file))
    assert before["missing"] == [run.name for run in expand(SWEEP, sweep)]
    for page in (before, after):
        del page["made"]
    assert alike(before, after)
    folder_table, file_table = (final_table(read_runs(path)).to_dict("list") for path in (sweep, file))
    assert alike(folder_table, file_table)
    shown, packed = (json.loads(fedsum("show", path, "--json")[1])["runs"] for path in (sweep, file))
    assert shown["deeper/own"]["last"]["mine"] is None
    assert alike(shown, packed)
    assert fedsum("report", file, "--out", "page.html")[0] == 0
    assert '"title":"sweep"' in (tmp_path / "page.html").read_text()
    code, out, _ = fedsum("show", file)
    assert (code, "diverged: train loss is nan" in out) == (0, True)


def test_a_run_alone(sweep, fedsum, tmp_path):
    file = pack(sweep / "FedSUM-Uniform-0", tmp_path / "alone.parquet")
    code, out, _ = fedsum("show", file)
    assert (code, "rounds done" in out, "eval_every" in out) == (0, True, True)
    shown, packed = (json.loads(fedsum("show", path, "--json")[1]) for path in (sweep / "FedSUM-Uniform-0", file))
    assert list(shown["runs"]) == ["."]
    assert alike(shown["runs"], packed["runs"])


# The command.


def test_the_command_says_what_it_packed(sweep, fedsum, tmp_path):
    shutil.copytree(sweep, tmp_path / "v1.2")
    code, out, _ = fedsum("pack", "v1.2")
    file = tmp_path / "v1.2.parquet"
    assert (code, f"packed: {file}" in out) == (0, True)
    assert f"{len(find_runs(sweep))} runs, {file.stat().st_size / 1e6:.2f} MB" in out
    assert "checkpoints, models and logs are not packed" in out
    code, out, _ = fedsum("pack", "v1.2", "--json")
    assert json.loads(out) == {"file": str(file), "bytes": file.stat().st_size, "runs": len(find_runs(sweep))}


def test_the_file_is_small(tmp_path):
    for seed in range(30):
        noise = random.Random(seed)
        curve = [{"loss": math.exp(-t / 50) * noise.uniform(0.9, 1.1), "bytes": 96200 * t} for t in range(100)]
        write_rows(tmp_path / f"runs/seed={seed}", curve, configured(seed=seed))
    # About four bytes per row: the noise of a float. Repeated settings and bytes cost next to nothing.
    assert pack(tmp_path / "runs").stat().st_size < 13_000


def test_the_file_is_whole_or_absent(sweep, tmp_path, monkeypatch):
    file = pack(sweep, tmp_path / "a.parquet")
    before = file.read_bytes()

    def full(self, table):
        raise OSError("No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(OSError, match="No space left"):
        pack(sweep, file)
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
    assert file.read_bytes() == before


# Commands that train where runs are missing.


def test_grid_chooses_as_from_the_folder(searched, fedsum, tmp_path, no_training):
    folder, packed = searched
    file = Path(shutil.copy(packed, tmp_path / "sent.parquet"))
    (tmp_path / "grid.toml").write_text(toml_text(SWEEP))
    chosen = best(expand(SWEEP, folder), {run.name: run for run in read_runs(folder)}, "error")
    code, out, error = fedsum("grid", "grid.toml", "--by", "error", "--folder", file)
    assert (code, f"best: {chosen.name}, distance to the optimum {chosen.value:.2g}" in out) == (0, True), error
    written = tomllib.loads((tmp_path / "sent/best.toml").read_text())
    eta_0, eta_g = chosen.settings["eta_l.eta_0"], chosen.settings["eta_g"]
    assert written == {"eta_l": {"name": "InverseSqrt", "eta_0": eta_0}, "eta_g": eta_g}
    assert not no_training
    code, out, _ = fedsum("grid", "grid.toml", "--by", "error", "--folder", file, "--json")
    shown = json.loads(out)
    rows = {name: run["last"] for name, run in shown["runs"].items()}
    assert alike(rows, {r.name: r.last for r in read_runs(folder)})
    [winner] = shown["best"].values()
    assert (winner["run"], winner["settings"], shown["by"]) == (chosen.name, chosen.settings, "error")
    assert winner["error"] == pytest.approx(chosen.value)


def test_reproduce_draws_and_trains_nothing(fedsum, tmp_path, no_training):
    table, _ = experiment("bias", "small")
    table = table | {"rounds": 6}
    trained(table, tmp_path / "elsewhere")
    file = pack(tmp_path / "elsewhere", tmp_path / "bias.parquet")
    shutil.rmtree(tmp_path / "elsewhere")
    how = ("reproduce", "bias", "--scale", "small", "--rounds", 6, "--folder", file)
    code, out, error = fedsum(*how)
    assert (code, "2 of 2 runs finished" in out) == (0, True), error
    assert str(tmp_path / "bias/rounds.png") in out
    for way in WAYS:
        assert (tmp_path / f"bias/{way}.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "bias/report.html").stat().st_size > 20_000
    code, _, error = fedsum(*how, "--seeds", 2)
    lacking = "2 of 4 runs have no result in it, first digits,FedSUM,seed=1; give a folder to run them in"
    assert (code, lacking in error, error.count("\n")) == (2, True, 1)
    code, _, error = fedsum(*how, "--set", "eta_g=0.5")
    assert (code, "eta_g = 0.5: the sweep in" in error) == (2, True)
    assert not no_training
    assert not find_runs(tmp_path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"eta_g": 0.5}, "eta_g = 0.5: the sweep in {file} has None"),
        ({"sweep": {"eta_g": [1.0]}}, "1 of 1 runs have no result in it, first eta_g=1.0"),
    ],
)
def test_another_sweep_is_refused(changed, message, searched, fedsum, tmp_path, no_training):
    (tmp_path / "other.toml").write_text(toml_text(SWEEP | changed))
    code, _, error = fedsum("grid", "other.toml", "--by", "error", "--folder", searched[1])
    assert (code, message.format(file=searched[1]) in error) == (2, True), error
    assert not no_training


def test_a_run_with_other_settings_is_refused(searched, fedsum, tmp_path, no_training):
    shutil.copytree(searched[0], tmp_path / "grid")
    (tmp_path / "grid/sweep.toml").unlink()
    file = pack(tmp_path / "grid")
    (tmp_path / "other.toml").write_text(toml_text(SWEEP | {"rounds": 13}))
    code, _, error = fedsum("grid", "other.toml", "--by", "error", "--folder", file)
    assert (code, "rounds = 13: the run in" in error, "has 12" in error) == (2, True, True), error
    assert not no_training


def test_a_stopped_run_is_no_result(searched, fedsum, tmp_path, no_training):
    shutil.copytree(searched[0], tmp_path / "grid")
    (tmp_path / "grid/eta_0=0.05,eta_g=1.0,seed=1/status.toml").write_text(
        'state = "stopped"\nround = 4\nreason = ""\n'
    )
    (tmp_path / "grid.toml").write_text(toml_text(SWEEP))
    code, _, error = fedsum("grid", "grid.toml", "--by", "error", "--folder", pack(tmp_path / "grid"))
    assert (code, "1 of 4 runs have no result in it, first eta_0=0.05,eta_g=1.0,seed=1" in error) == (2, True), error
    assert not no_training


def test_a_packed_file_is_not_resumed(searched, fedsum):
    code, _, error = fedsum("resume", searched[1])
    assert (code, "a packed file has no checkpoints" in error, error.count("\n")) == (2, True, 1)


# Merging.


@pytest.fixture
def parts(searched, tmp_path):
    """The sweep as two machines would do it, one seed each."""
    for seed in (0, 1):
        part = tmp_path / f"machine{seed}"
        for run in searched[0].glob(f"*seed={seed}"):
            shutil.copytree(run, part / run.name)
        table = SWEEP | {"sweep": SWEEP["sweep"] | {"seed": [seed]}}
        (part / "sweep.toml").write_text(toml_text(table))
    return tmp_path / "machine0", tmp_path / "machine1"


def test_the_parts_of_several_machines_are_one_sweep(parts, searched, fedsum, tmp_path, no_training):
    one = pack(parts[0])
    code, out, _ = fedsum("pack", one, parts[1], "--out", "all.parquet")
    assert (code, "4 runs" in out) == (0, True)
    merged = {run.name: run for run in read_runs(tmp_path / "all.parquet")}
    assert all(alike(run.rows, merged[run.name].rows) for run in read_runs(searched[0]))
    assert not_begun(tmp_path / "all.parquet") == []
    (tmp_path / "grid.toml").write_text(toml_text(SWEEP))
    assert fedsum("grid", "grid.toml", "--by", "error", "--folder", "all.parquet")[0] == 0
    # A part of which a run is missing says so after merging, too.
    shutil.rmtree(parts[1] / "eta_0=0.05,eta_g=1.0,seed=1")
    assert not_begun(pack([one, parts[1]], tmp_path / "less.parquet")) == ["eta_0=0.05,eta_g=1.0,seed=1"]


def test_equal_names_need_equal_content(parts, tmp_path):
    file = pack(parts[0])
    assert len(read_runs(pack([file, parts[0], file], tmp_path / "same.parquet"))) == 2
    run = parts[0] / "eta_0=0.05,eta_g=1.0,seed=0"
    path, text = run / "metrics.csv", (run / "metrics.csv").read_text()
    head, first, *rest = text.splitlines()
    cells = dict(zip(head.split(","), first.split(","), strict=True))
    for column, other in (("error", repr(float(cells["error"]) * 1.001)), ("bytes", "1")):
        line = ",".join((cells | {column: other}).values())
        path.write_text("\n".join([head, line, *rest, ""]))
        with pytest.raises(InputError, match="which has the same name; pack them into two files"):
            pack([file, parts[0]], tmp_path / "other.parquet")
    path.write_text(text)
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace("eta_0 = 0.05", "eta_0 = 0.06"))
    with pytest.raises(InputError, match="which has the same name"):
        pack([file, parts[0]], tmp_path / "other.parquet")
    assert not (tmp_path / "other.parquet").exists()


def test_runs_alone_are_merged_by_the_names_of_their_folders(sweep, tmp_path):
    one = pack(sweep / "FedSUM-Uniform-0", tmp_path / "mine.parquet")
    merged = pack([one, sweep / "FedSUM-Uniform-1"], tmp_path / "both.parquet")
    assert [run.name for run in read_runs(merged)] == ["mine", "FedSUM-Uniform-1"]


# What is refused.


def test_a_running_run_is_refused(sweep, tmp_path):
    shutil.copytree(sweep, tmp_path / "sweep")
    run = tmp_path / "sweep/FedSUM-Uniform-0"
    (run / "status.toml").write_text('state = "running"\nround = 4\n')
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="is running; wait until it ends, or stop it with Ctrl-C"):
            pack(tmp_path / "sweep")
    assert not (tmp_path / "sweep.parquet").exists()
    assert len(read_runs(pack(tmp_path / "sweep"))) == len(find_runs(sweep))  # its process is gone: interrupted


def test_a_damaged_run_is_refused(sweep, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(sweep, "sweep")
    (tmp_path / "sweep/FedSUM-Uniform-0/config.toml").write_text("rounds = ")
    with pytest.raises(InputError, match=r"FedSUM-Uniform-0': config\.toml: .*; repair it"):
        pack("sweep")


def rewritten(file, change):
    """The file with other metadata."""
    table, metadata = pq.read_table(file), pq.read_metadata(file).metadata
    described = change(json.loads(metadata[b"fedsum"]))
    with pq.ParquetWriter(file, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"fedsum": json.dumps(described)})


def spoiled(file, how):
    data = file.read_bytes()
    if how == "no Parquet":
        file.write_text("round,client\n")
    elif how == "no fedsum":
        pq.write_table(pa.table({"round": [1]}), file)
    elif how == "cut":
        file.write_bytes(data[: len(data) // 2])
    elif how == "other content":
        rewritten(file, lambda described: described | {"content": "AAAA"})
    elif how == "no content":
        rewritten(file, lambda described: {"format": 1})
    elif how == "gone":
        file.unlink()


@pytest.mark.parametrize("how", ["no Parquet", "no fedsum", "cut", "other content", "no content", "gone"])
def test_files_that_pack_did_not_write_are_refused(how, sweep, fedsum, tmp_path):
    pack(sweep, tmp_path / "a.parquet")
    spoiled(tmp_path / "a.parquet", how)
    reproduced = ("reproduce", "bias", "--scale", "small", "--folder", "a.parquet")
    for command in (("show", "a.parquet"), ("report", "a.parquet"), reproduced):
        code, out, error = fedsum(*command)
        assert (code, out, error.count("\n")) == (2, "", 1)
        expected = "an existing file" if how == "gone" else "a file"
        assert error.startswith(f"error: file = 'a.parquet': {expected} that `fedsum pack` wrote")


def test_a_flipped_bit_in_the_metrics_is_found(sweep, tmp_path):
    file = pack(sweep, tmp_path / "a.parquet")
    data, column = file.read_bytes(), pq.read_metadata(file).row_group(0).column(2)
    for place in range(1, 40):  # a page ends with its values
        at = column.data_page_offset + column.total_compressed_size - place
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(InputError, match="a file that `fedsum pack` wrote"):
            read_runs(file)


def test_a_newer_format_is_refused(sweep, fedsum, tmp_path):
    file = pack(sweep, tmp_path / "a.parquet")
    rewritten(file, lambda described: described)
    assert len(read_runs(file)) == len(find_runs(sweep))
    rewritten(file, lambda described: described | {"format": 2})
    code, _, error = fedsum("show", file)
    assert (code, "packed in format 2, this fedsum reads up to 1; update fedsum" in error) == (2, True)


def test_other_refusals(sweep, tmp_path):
    file = pack(sweep, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"out = None: a file ending in \.parquet"):
        pack([sweep, file])
    with pytest.raises(InputError, match=r"out = None: a file ending in \.parquet"):
        pack(file)
    with pytest.raises(InputError, match=r"a file ending in \.parquet"):
        pack(sweep, tmp_path / "a.zip")
    with pytest.raises(InputError, match="a file in an existing folder"):
        pack(sweep, tmp_path / "nowhere/a.parquet")
    with pytest.raises(InputError, match="at least one folder"):
        pack([], tmp_path / "b.parquet")
    with pytest.raises(InputError, match="a folder with runs in it"):
        pack(tmp_path / "nowhere")
    write_rows(tmp_path / "one", [{"run": 1.0}])
    with pytest.raises(InputError, match="metric = 'run': another name"):
        pack(tmp_path / "one")


def test_a_file_with_other_runs_is_not_overwritten(sweep, tmp_path):
    file = pack(sweep, tmp_path / "a.parquet")
    before = file.read_bytes()
    with pytest.raises(InputError, match=r"runs that would be lost, first .*; pack it too, or give another file"):
        pack(sweep / "deeper", file)
    assert file.read_bytes() == before
    pack([file, sweep / "deeper"], file)
    assert len(read_runs(file)) == len(find_runs(sweep)) + 1
    pq.write_table(pa.table({"round": [1]}), tmp_path / "theirs.parquet")
    with pytest.raises(InputError, match="a file that `fedsum pack` wrote"):
        pack(sweep, tmp_path / "theirs.parquet")
