"""Reports from run folders: names, numbers, figures and the page."""

import fcntl
import json
import math
import re
import shutil
import sys
from importlib import resources
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from sweeps import COMMAND, TASK, configured, toml, write_run, write_sweep

import fedsum
from fedsum.base.checks import InputError
from fedsum.figures import COLOURS, DASHES, LAYERS, curves, save, scale, styles
from fedsum.report import Run, against_delay, read_runs
from fedsum.report.facets import compared, facets, ordered, values
from fedsum.report.page import SCRIPTS, payload, render, write_page
from fedsum.report.panels import bars, mean_curve, panel_figure
from fedsum.report.sensitivity import against_setting, setting_table
from fedsum.report.table import final_table, metric_names
from fedsum.tasks import data

ALGORITHMS = ("FedSUM", "FedAvg", "SCAFFOLD")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "sweep <1>"
    write_sweep(folder, algorithms=ALGORITHMS, rounds=28)
    return folder


@pytest.fixture(scope="module")
def runs(sweep):
    return read_runs(sweep)


def table(rounds=(0, 10, 20), **columns):
    made = {"train_loss": [2.0, 1.0, 0.5], "test_accuracy": [0.1, 0.5, 0.9], "communication": [0, 30, 60]} | columns
    return pd.DataFrame({"round": rounds, **made})


def made(tmp_path, algorithm="FedSUM", schedule="Uniform", *, metrics=None, state="finished", **config):
    """A run without a training."""
    folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
    write_run(folder, configured(algorithm, schedule, **config), table() if metrics is None else metrics, state)
    return read_runs(folder)[0]


# Reading.


def test_read_runs_reads_runs_at_any_depth_and_a_run_alone(sweep, tmp_path):
    deep = tmp_path / "a" / "b"
    shutil.copytree(sweep, deep)
    assert len(read_runs(tmp_path)) == len(read_runs(sweep)) == 17
    (run,) = read_runs(sweep / "SCAFFOLD-Uniform-1")
    assert (run.state, run.round, run.reason) == ("diverged", 13, "train loss is inf <i>in</i> round 13")
    assert run.config["algorithm"] == {"name": "SCAFFOLD"}
    assert run.metrics["round"].tolist() == [0, 4, 8, 12]
    assert run.metrics["train_loss"].iloc[0] == pytest.approx(2.3, abs=0.2)


@pytest.mark.parametrize(
    ("written", "rounds"),
    [
        ("round,train_loss\n0,2.5\n10,1.5\n20,0.", [0, 10]),  # an incomplete row, although it looks like a number
        ("round,train_loss\n0,2.5\n10,1.5\n20\n", [0, 10]),
        ("round,train_loss\n0,2.5\n10,1.5\n2\0\0\0,1\n", [0, 10]),
        ("round,train_loss\n0,2.5\n10,9.0\n10,1.5\n", [0, 10]),  # repeated after a restart
        ("round,train_loss\n0,2.5\n10,\n", [0, 10]),
        ("round,train_lo", []),
        ("", []),
    ],
)
def test_metrics_of_a_killed_run_are_read_up_to_the_last_whole_line(tmp_path, written, rounds):
    run = made(tmp_path)
    (run.folder / "metrics.csv").write_text(written)
    (again,) = read_runs(run.folder)
    assert again.metrics["round"].tolist() == rounds
    if "9.0" in written:
        assert again.metrics["train_loss"].tolist() == [2.5, 1.5]


def test_a_run_that_has_only_begun(tmp_path):
    run = made(tmp_path)
    (run.folder / "metrics.csv").unlink()
    (run.folder / "status.toml").rename(run.folder / ".lock")  # killed before its first status
    (again,) = read_runs(run.folder)
    assert (again.state, again.round, again.reason, len(again.metrics)) == ("interrupted", 0, "", 0)
    assert "interrupted" in render([again], "begun")


def test_a_run_whose_process_is_gone_is_not_running(tmp_path):
    run = made(tmp_path, state="running")
    assert read_runs(run.folder)[0].state == "interrupted"
    with (run.folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert read_runs(run.folder)[0].state == "running"
    assert read_runs(run.folder)[0].state == "interrupted"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("config.toml", "rounds = ", r"config\.toml: Invalid value"),
        ("config.toml", "rounds = 3\n", r"config\.toml: no table \[task\] with a name"),
        ("metrics.csv", "round,train_loss\n0,oops\n10,1.0\n", r"metrics\.csv line 2: '0,oops' is not 2 numbers"),
        ("metrics.csv", "train_loss\n1.0\n", "metrics.csv: no column named round"),
    ],
)
def test_a_broken_file_is_named(tmp_path, file, text, message):
    run = made(tmp_path)
    (run.folder / file).write_text(text)
    with pytest.raises(InputError, match=message):
        read_runs(tmp_path)


def test_a_broken_status_is_a_run_whose_process_is_gone(tmp_path):
    run = made(tmp_path)
    (run.folder / "status.toml").write_text("state\n")
    assert read_runs(tmp_path)[0].state == "interrupted"


def test_counters_of_a_deployment_are_no_metrics(tmp_path):
    run = made(tmp_path, metrics=table(test_accuracy=[0.1, 0.5, 0.9]).assign(epoch=0, drift=1e-9))
    assert metric_names([run]) == ["test_accuracy", "train_loss"]


def test_folders_without_runs_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"no runs in it: a run is a folder with a config\.toml"):
        read_runs(tmp_path)
    with pytest.raises(InputError, match="a folder with runs in it"):
        read_runs(tmp_path / "nowhere")


# Names.


def test_names_tell_only_what_differs(tmp_path):
    plain = facets([made(tmp_path), made(tmp_path, seed=1), made(tmp_path, eval_every=2)])
    assert {str(each) for each in plain} == {str(plain[0])}
    assert (plain[0].task, plain[0].schedule, plain[0].algorithm) == ("digits", "Uniform (P1)", "FedSUM")
    assert plain[0].setting == ""


def test_probabilities_batches_and_rates_are_told_where_they_vary(tmp_path):
    ps = [made(tmp_path, schedule="Independent", fields={"n": 20, "p": p}) for p in (0.5, 0.05, 1.0)]
    assert values(facets(ps), "schedule") == ["Independent p=0.05", "Independent p=0.5", "Independent p=1"]
    assert compared(facets(ps)) == "schedule"
    batches = [made(tmp_path, batch_size=size) for size in (128, 8, 16)]
    assert values(facets(batches), "setting") == ["batch_size=8", "batch_size=16", "batch_size=128"]
    assert compared(facets(batches)) == "setting"
    rates = [made(tmp_path, eta_l={"name": "InverseSqrt", "eta_0": eta, "over": 10.0}) for eta in (0.1, 0.01)]
    assert values(facets(rates), "setting") == ["eta_0=0.01", "eta_0=0.1"]
    buffers = [
        made(tmp_path, schedule="Asynchronous", fields={"n": 20, "buffer": size, "devices": {}}) for size in (10, 5, 20)
    ]
    expected = [f"Asynchronous ({size} at a time)" for size in (5, 10, 20)]
    assert values(facets(buffers), "schedule") == expected
    long = [made(tmp_path, schedule="Independent", fields={"n": 5, "p": [0.1] * 4 + [p]}) for p in (0.1, 0.2)]
    assert len(values(facets(long), "schedule")) == 2


def test_a_function_of_the_users_is_called_by_its_own_name(tmp_path):
    mine = [made(tmp_path, schedule="a.package:follows_labels", fields={"n": 20, "sine": s}) for s in (True, False)]
    assert values(facets(mine), "schedule") == ["follows labels sine=False", "follows labels sine=True"]


def test_what_goes_with_an_algorithm_or_a_task_is_no_setting_of_its_own(tmp_path):
    other = made(tmp_path, "FedAWE", eta_l=0.5)
    assert values(facets([made(tmp_path), other]), "setting") == [""]
    larger = made(tmp_path, fields={"n": 50, "size": 10}, task=TASK | {"name": "mnist", "clients": 50})
    assert values(facets([made(tmp_path), larger]), "schedule") == ["Uniform (P1)"]
    reseeded = made(tmp_path, task=TASK | {"seed": 3})
    assert len(set(facets([made(tmp_path), reseeded]))) == 1
    alphas = [made(tmp_path, task=TASK | {"alpha": alpha}) for alpha in (1.0, 0.1)]
    assert values(facets(alphas), "task") == ["digits alpha=0.1", "digits alpha=1"]


def test_the_papers_order_and_looks_are_the_same_everywhere(tmp_path, runs):
    assert values(facets(runs), "algorithm") == ["FedSUM", "SCAFFOLD", "FedAvg"]
    assert values(facets(runs), "schedule") == ["Uniform (P1)", "Independent (P2)", "Biased"]
    assert ordered(facets(runs))[1].algorithm == "SCAFFOLD"
    nine = ["FedSUM", "FedSUM-CR", "FedSUM-B", "SCAFFOLD", "FedAvg", "FedAU", "FedAWE", "FedVARP", "MIFA"]
    assert len({(COLOURS[place], DASHES[place]) for place in styles(nine, "algorithm").values()}) == 9
    assert styles(["FedAvg", "mine"], "algorithm")["FedAvg"] == styles(nine, "algorithm")["FedAvg"]
    assert len(set(styles(["FedSUM", "mine", "yours"], "algorithm").values())) == 3
    assert len(styles([f"p={n}" for n in range(30)], "schedule")) == 30


# Numbers.


def test_final_values_are_means_and_spreads_over_the_seeds_that_finished(tmp_path):
    two = [
        made(tmp_path),
        made(tmp_path, seed=1, metrics=table(test_accuracy=[0.1, 0.7, 0.7])),
        made(tmp_path, seed=2, metrics=table(test_accuracy=[0.1, 0.0, 0.0]), state="diverged"),
    ]
    (row,) = final_table(two, last=15).to_dict("records")
    assert (row["runs"], row["over"], row["finished"], row["diverged"], row["round"]) == (3, 2, 2, 1, 20)
    assert row["test_accuracy"] == pytest.approx(0.8)
    assert row["test_accuracy_std"] == pytest.approx(np.sqrt(0.02))
    assert row["test_accuracy_last"] == pytest.approx(0.7)  # rounds 10 and 20
    assert row["test_accuracy_last_std"] == pytest.approx(0)
    assert row["communication"] == 60


def test_final_values_of_runs_on_their_way_and_of_none(tmp_path):
    (row,) = final_table([made(tmp_path, state="stopped")]).to_dict("records")
    assert (row["over"], row["finished"], row["round"], row["test_accuracy"]) == (1, 0, 20, 0.9)
    assert np.isnan(row["test_accuracy_std"])
    behind = made(tmp_path, state="stopped", seed=1, metrics=table().iloc[:2])
    (row,) = final_table([made(tmp_path, state="stopped"), behind]).to_dict("records")
    assert (row["over"], row["round"]) == (2, 10)
    assert (row["test_accuracy"], row["communication"]) == tuple(table()[["test_accuracy", "communication"]].iloc[1])
    (row,) = final_table([made(tmp_path, state="diverged")]).to_dict("records")
    assert row["over"] == 0
    assert np.isnan(row["test_accuracy"])


def test_the_server_model_of_others_is_their_only_one(tmp_path):
    awe = made(tmp_path, "FedAWE", metrics=table(server_test_accuracy=[0.1, 0.2, 0.3]))
    both = [made(tmp_path), awe]
    assert metric_names(both) == ["test_accuracy", "train_loss", "server_test_accuracy"]
    assert final_table(both)["server_test_accuracy"].tolist() == [0.9, 0.3]


def test_mean_curve_over_the_seeds_that_got_there(tmp_path):
    two = [
        made(tmp_path, rounds=20),
        made(tmp_path, seed=1, rounds=20, metrics=table(train_loss=[4.0, 3.0, np.inf], communication=[0, 50, 70])),
    ]
    curve = mean_curve(two, "communication", "train_loss")
    assert curve["x"].tolist() == [0, 40, 60]
    assert curve["mean"].tolist() == [3.0, 2.0, 0.5]
    assert (curve["low"].tolist(), curve["high"].tolist()) == ([2.0, 1.0, 0.5], [4.0, 3.0, 0.5])
    assert curve["runs"].tolist() == [2, 2, 1]
    assert mean_curve(two, "round", "train_loss", last=11).index.tolist() == [10, 20]
    assert mean_curve(two, "bytes", "train_loss")["x"].isna().all()


# Figures.


def texts(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_grid_has_the_papers_layout(runs, tmp_path):
    figure = panel_figure(runs)
    assert len(figure.axes) == 6
    assert [ax.get_title() for ax in figure.axes[:3]] == ["Uniform (P1)", "Independent (P2)", "Biased"]
    assert [figure.axes[k].get_ylabel() for k in (0, 3)] == ["digits\ntrain loss", "digits\ntest accuracy"]
    assert [ax.get_xlabel() for ax in figure.axes] == [""] * 3 + ["round"] * 3
    assert [ax.get_yscale() for ax in figure.axes] == ["log"] * 3 + ["linear"] * 3
    assert texts(figure) == ["FedSUM", "SCAFFOLD", "FedAvg"]
    assert {line.get_color() for line in figure.axes[3].lines} == {"#0072B2", "#CC79A7", "#E69F00"}
    crosses = [line for ax in figure.axes for line in ax.lines if line.get_marker() == "x"]
    assert [line.get_xdata()[0] for line in crosses] == [12, 12]
    assert len(figure.axes[0].collections) == 3  # bands
    for ending in ("png", "pdf"):
        assert save(figure, tmp_path / f"grid.{ending}").stat().st_size > 1000


def test_grid_zooms_on_the_last_rounds_and_counts_communication(runs):
    figure = panel_figure(runs, x="communication", y="test_accuracy", last=6)
    assert len(figure.axes) == 3
    assert figure.axes[0].get_xlabel() == "vectors sent"
    assert all(len(line.get_xdata()) == 6 for ax in figure.axes for line in ax.lines if line.get_marker() != "x")
    # 4 clients per round; FedAvg sends two vectors per client, the others three
    assert max(max(line.get_xdata()) for line in figure.axes[0].lines) == 28 * 4 * 3


def test_grid_compares_patterns_where_there_is_one_algorithm(runs):
    one = [run for run in runs if run.config["algorithm"]["name"] == "FedSUM"]
    figure = panel_figure(one, title="cases")
    assert texts(figure) == ["Uniform (P1)", "Independent (P2)", "Biased"]
    assert [ax.get_ylabel() for ax in figure.axes] == ["digits\ntrain loss", "digits\ntest accuracy"]
    assert figure.get_suptitle() == "cases"


def test_grid_of_several_tasks_and_of_what_is_missing(tmp_path):
    mnist = TASK | {"name": "mnist"}
    few = [made(tmp_path), made(tmp_path, task=mnist), made(tmp_path, "FedAvg", "Biased", task=mnist)]
    figure = panel_figure(few, y="train_loss")
    assert [figure.axes[k].get_ylabel() for k in (0, 2)] == ["MNIST\ntrain loss", "digits\ntrain loss"]
    assert [text.get_text() for text in figure.axes[3].texts] == ["no runs"]
    wide = panel_figure(few[:2], compare="algorithm")
    assert [ax.get_title() for ax in wide.axes] == ["MNIST", "digits", "", ""]
    assert texts(wide) == []
    assert len(panel_figure(few, compare="task", y="train_loss").axes) == 4


def test_the_legend_and_the_title_have_room(tmp_path):
    runs = [made(tmp_path, "FedAU", eta_l={"name": "InverseSqrt", "eta_0": 0.1, "over": i + 1e-9}) for i in range(1, 6)]
    picture = panel_figure(runs, y="train_loss", title="a title that is longer than the picture is wide, " * 3)
    picture.canvas.draw()
    width = picture.bbox.width
    for artist in (*picture.legends, picture._suptitle):
        box = artist.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= width


@pytest.mark.parametrize(("low", "high"), [(0.12, 2.4), (0.9, 2.3), (0.03, 2.3), (1.25, 1.5)])
def test_a_logarithmic_axis_has_numbers_all_along(low, high):
    ax = Figure().subplots()
    ax.plot([0, 1], [low, high])
    scale(ax, "train_loss", [low, high])
    ticks = [tick for tick in ax.get_yticks() if low <= tick <= high]
    assert len(ticks) >= 3
    assert min(ticks) < low * (high / low) ** 0.35
    assert max(ticks) > low * (high / low) ** 0.65


def test_a_run_that_blew_up_does_not_decide_the_scale(tmp_path):
    wild = table(train_loss=[2.0, 1e6, 1e12], test_accuracy=[0.1, 0.1, 0.1])
    figure = panel_figure([made(tmp_path), made(tmp_path, "FedAvg", metrics=wild, state="diverged")], y="train_loss")
    (ax,) = figure.axes
    assert ax.get_ylim()[1] < 3
    (cross,) = [line for line in ax.lines if line.get_marker() == "x"]
    assert cross.get_ydata()[0] == ax.get_ylim()[1]
    lost = panel_figure([made(tmp_path, metrics=wild, state="diverged")], y="train_loss")
    assert lost.axes[0].get_ylim()[1] > 1e12


def test_whole_lines_are_drawn_beneath_broken_ones_and_baselines_beneath_the_family():
    places = styles(["FedSUM", "FedSUM-CR", "FedSUM-B", "FedAvg", "MIFA"], "algorithm")
    drawn = sorted(places, key=lambda label: LAYERS.index(places[label]))
    assert drawn == ["FedAvg", "MIFA", "FedSUM", "FedSUM-CR", "FedSUM-B"]


def test_curves_of_a_panel_never_share_a_colour(tmp_path):
    nine = ["FedSUM", "FedSUM-CR", "FedSUM-B", "SCAFFOLD", "FedAvg", "FedAU", "FedAWE", "FedVARP", "MIFA"]
    options = ["FedSUM divide_by_seen=True", "FedBuff", "mine"]
    places = styles([*nine, *options], "algorithm")
    assert len(set(places.values())) == 12 == len(set(COLOURS)) == len(DASHES)
    # An algorithm of the paper that is not in the panel keeps its colour.
    alone = styles(["FedSUM", *options], "algorithm")
    assert {alone[label] for label in options}.isdisjoint(styles(nine, "algorithm").values())
    solid = [place for place in styles([f"p={n}" for n in range(8)], "schedule").values() if not DASHES[place]]
    assert solid == [0]


def dense(end=60, every=20, last=20, ends=0.9):
    """Metrics that rise from chance to `ends`, with the last rounds evaluated one by one."""
    rounds = [t for t in range(end + 1) if t % every == 0 or t > end - last]
    accuracy = [0.1 + (ends - 0.1) * (t > 0) for t in rounds]
    loss = [1.0 + (t % 2) for t in rounds]
    return table(rounds, train_loss=loss, test_accuracy=accuracy, communication=rounds)


def test_the_last_rounds_are_drawn_as_far_apart_as_the_others(tmp_path):
    options = {"rounds": 60, "eval_every": 20, "eval_last": 20}
    run = made(tmp_path, metrics=dense(), **options)
    died = made(tmp_path, "FedAvg", metrics=dense(end=53), state="diverged", **options)
    (ax,) = panel_figure([run, died], y="train_loss").axes
    drawn = [line.get_xdata().tolist() for line in ax.lines if line.get_marker() != "x"]
    assert sorted(drawn) == [[0, 20, 40, 53], [0, 20, 40, 60]]
    (zoom,) = panel_figure([run], y="train_loss", last=20).axes
    assert zoom.lines[0].get_xdata().tolist() == list(range(41, 61))
    (half,) = panel_figure([run], y="train_loss", last=30).axes
    assert half.lines[0].get_xdata().tolist() == [40, 60]


def test_the_axis_of_an_accuracy_fits_the_curves_after_the_first_tenth(tmp_path):
    rounds = list(range(0, 101, 2))
    rising = [0.1 if t <= 10 else 0.9 + t / 2000 for t in rounds]
    rising[30] = 0.3  # a short dip
    falling = [0.99 if t == 2 else 0.94 for t in rounds]
    runs = [
        made(
            tmp_path,
            eval_every=2,
            metrics=table(rounds, train_loss=[2.0] + [1.0] * 50, test_accuracy=accuracy, communication=rounds),
        )
        for accuracy in (rising, falling)
    ]

    def limits(runs, metric="test_accuracy"):
        return panel_figure(runs, y=metric).axes[0].get_ylim()

    assert limits(runs[:1]) == pytest.approx((0.9, 0.95), abs=0.01)
    assert limits(runs) == pytest.approx((0.9, 0.99), abs=0.01)  # a peak in the first tenth is not cut
    low, high = limits(runs, "train_loss")
    assert low < 1
    assert high > 2
    assert limits([made(tmp_path)])[0] < 0.5  # no value of a short run is a dip


def test_dashes_put_a_second_facet_into_the_panel(tmp_path):
    tasks = [TASK | {"name": "mnist"}, TASK]
    runs = [
        made(tmp_path, name, task=task, batch_size=size)
        for task in tasks
        for name, size in (("FedSUM", 8), ("FedSUM", 16), ("FedAvg", 16))
    ]
    assert len(panel_figure(runs, y="train_loss").axes) == 4
    figure = panel_figure(runs, y="train_loss", dash="setting")
    assert [ax.get_title() for ax in figure.axes] == ["MNIST", "digits"]
    drawn = [(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines]
    assert drawn == [(COLOURS[0], "-"), (COLOURS[4], "--"), (COLOURS[0], "--")]
    assert texts(figure) == ["FedSUM", "FedAvg", "batch_size=8", "batch_size=16"]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.1, 0.5, ["10%", "20%", "30%", "40%", "50%"]),
        (0.72, 0.875, ["72.5%", "75.0%", "77.5%", "80.0%", "82.5%", "85.0%", "87.5%"]),
    ],
)
def test_ticks_of_a_percent_axis_have_no_more_decimals_than_it_needs(low, high, expected):
    ax = Figure(figsize=(4, 3)).subplots()
    ax.plot([0, 1], [low, high])
    scale(ax, "test_accuracy", [low, high])
    ticks = [text.get_text() for text in ax.get_yticklabels() if low <= round(text.get_position()[1], 9) <= high]
    assert ticks == expected


def test_an_algorithm_has_one_colour_in_curves_and_reports():
    labels = ["FedAvg", "FedSUM", "mine"]
    (ax,) = curves(dict.fromkeys(labels, table()), ["test_accuracy"]).axes
    places = styles(labels, "algorithm")
    assert [line.get_color() for line in ax.lines] == [COLOURS[places[label]] for label in labels]
    (alone,) = curves({"FedSUM": table()}, ["test_accuracy"]).axes[0].lines
    assert alone.get_color() == ax.lines[1].get_color()


def test_curves_of_accuracies_have_percent_ticks():
    (ax,) = curves({"FedSUM": table()}, ["test_accuracy"]).axes
    assert {text.get_text()[-1] for text in ax.get_yticklabels()} == {"%"}


def test_the_page_has_every_colour():
    style = resources.files("fedsum.report").joinpath("web/page.css").read_text()
    for place in range(len(COLOURS)):
        assert style.count(f"--c{place}:") == 2  # light and dark


def test_wide_and_narrow_logarithmic_axes_have_the_same_numbers():
    labels = []
    for low in (0.005, 0.2):
        ax = Figure(figsize=(4, 3)).subplots()
        ax.plot([0, 1], [low, 8])
        scale(ax, "train_loss", [low, 8])
        labels.append([text.get_text() for text in ax.get_yticklabels()])
    assert "1" in labels[0]
    assert "1" in labels[1]


def test_numbers_of_points_keep_apart():
    near = [10.0, 10.1, 10.2, 10.3, 50.0]
    found = pd.DataFrame({"schedule": list("abcde"), "tau_avg": near, "mean_delay": near, "error": [1, 1, 1.001, 1, 2]})
    figure = against_delay(found.assign(lowest=1.0, highest=1.0))
    figure.draw_without_rendering()
    for ax in figure.axes:
        boxes = [Text.get_window_extent(text) for text in ax.texts]
        assert [text.get_text() for text in ax.texts] == ["1", "2", "3", "4", "5"]
        assert not [1 for one, other in combinations(boxes, 2) if one.overlaps(other)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"x": "rounds"}, "x = 'rounds': did you mean 'round'"),
        ({"y": "accuracy"}, "y = 'accuracy': did you mean 'test_accuracy'"),
        ({"last": 0}, "last = 0"),
        ({"compare": "pattern"}, "compare = 'pattern'"),
        ({"compare": "algorithm", "dash": "algorithm"}, "dash = 'algorithm'"),
        ({"dash": "patterns"}, "dash = 'patterns'"),
    ],
)
def test_grid_refuses(runs, options, message):
    with pytest.raises(InputError, match=message):
        panel_figure(runs, **options)
    with pytest.raises(InputError, match="at least one run"):
        panel_figure([])


def rated(tmp_path, algorithm, eta, loss=1.0, **options):
    rate = {"name": "InverseSqrt", "eta_0": eta, "over": 10.0}
    measured = table(train_loss=[loss] * 3, test_accuracy=[1 / (1 + loss)] * 3)
    return made(tmp_path, algorithm, eta_l=rate, metrics=measured, **options)


def test_more_than_four_panels_of_a_metric_go_below_each_other(tmp_path):
    few = [rated(tmp_path, name, eta) for name in ("FedSUM", "FedAvg", "MIFA", "FedAU") for eta in (0.1, 0.3)]
    beside = panel_figure(few, compare="setting")
    assert [ax.get_title() for ax in beside.axes[:4]] == [
        "digits, FedSUM",
        "digits, FedAvg",
        "digits, FedAU",
        "digits, MIFA",
    ]
    below = panel_figure([*few, rated(tmp_path, "FedAWE", 0.1)], compare="setting")
    assert [ax.get_ylabel() for ax in below.axes[:3]] == [
        "digits, FedSUM\ntrain loss",
        "digits, FedSUM\ntest accuracy",
        "digits, FedAvg\ntrain loss",
    ]
    assert below.get_figwidth() < beside.get_figwidth()


def test_what_algorithms_came_to_against_a_setting(tmp_path):
    runs = [
        rated(tmp_path, "FedSUM", eta, loss, seed=seed) for eta, loss in ((0.1, 1.0), (0.01, 1.5)) for seed in (0, 1)
    ]
    runs += [rated(tmp_path, "FedAvg", 0.01, 1.2), rated(tmp_path, "FedAvg", 0.1, 1e9, state="diverged")]
    found = setting_table(runs)
    assert found[["algorithm", "value", "over"]].to_numpy().tolist() == [
        ["FedSUM", 0.01, 2],
        ["FedSUM", 0.1, 2],
        ["FedAvg", 0.01, 1],
        ["FedAvg", 0.1, 0],
    ]
    figure = against_setting(found, title="rates")
    loss, accuracy = figure.axes
    assert (loss.get_xlabel(), loss.get_ylabel()) == ("eta_0", "digits\ntrain loss")
    fedsum = next(line for line in loss.lines if line.get_color() == COLOURS[0])
    assert (fedsum.get_xdata().tolist(), fedsum.get_ydata().tolist()) == ([0.01, 0.1], [1.5, 1.0])
    for ax, edge in ((loss, 1), (accuracy, 0)):
        (cross,) = [line for line in ax.lines if line.get_marker() == "x"]
        assert (cross.get_xdata()[0], cross.get_ydata()[0]) == (0.1, ax.get_ylim()[edge])
    assert texts(figure) == ["FedSUM", "FedAvg"]
    assert loss.get_ylim()[1] < 3
    figure.canvas.draw()  # a warning that the layout has no room would be an error


def test_patterns_are_apart_where_there_are_several(tmp_path):
    runs = [rated(tmp_path, "FedSUM", eta, eta, schedule=each) for eta in (0.25, 0.5) for each in ("Biased", "Uniform")]
    figure = against_setting(setting_table(runs), y=["train_loss"])
    assert [ax.get_ylabel() for ax in figure.axes] == ["digits, Uniform (P1)\ntrain loss", "digits, Biased\ntrain loss"]
    assert [ax.lines[0].get_ydata().tolist() for ax in figure.axes] == [[0.25, 0.5]] * 2


def test_a_setting_is_one_number(tmp_path):
    assert setting_table([made(tmp_path)]) is None
    assert (
        setting_table([rated(tmp_path, "FedSUM", eta, batch_size=size) for eta in (0.1, 0.2) for size in (8, 16)])
        is None
    )


def test_bars_have_a_panel_a_set():
    counts = np.array([[3, 0], [1, 2], [0, 4]])
    figure = bars({"MNIST": counts, "SVHN": 2 * counts})
    assert [ax.get_title() for ax in figure.axes] == ["MNIST", "SVHN"]
    assert figure.axes[1].patches[-1].get_data().values.tolist() == [6, 6, 8]


# The page as a file.


def embedded(text):
    return json.loads(re.search(r'<script type="application/json" id="payload">(.*?)</script>', text, re.DOTALL)[1])


def test_page_stands_alone_and_nothing_in_it_is_markup_by_accident(sweep, tmp_path):
    path = write_page(sweep, tmp_path / "report.html")
    text = path.read_text()
    assert set(re.findall(r"https?://[^\"' )]*", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(?:link|script|img)[^>]+(?:src|href)=[\"'](?!data:)", text)
    assert "<title>sweep &lt;1&gt;" in text
    for forbidden in ("<i>in</i>", "<b>done</b>", "<1>", "{{"):
        assert forbidden not in text
    held = embedded(text)
    assert held["runs"][0]["command"] == COMMAND
    assert len(held["runs"]) == 17
    assert held["missing"] == ["digits · Biased · SCAFFOLD: seed 1"]
    assert list(tmp_path.iterdir()) == [path]


def test_scripts_are_all_on_the_page_and_use_only_names_from_files_above_them():
    web = resources.files("fedsum.report") / "web"
    files = {path.name for path in web.iterdir() if path.name.endswith(".js")}
    assert files == {f"{name}.js" for name in SCRIPTS}
    texts = [re.sub("//.*", "", (web / f"{name}.js").read_text(encoding="utf-8")) for name in SCRIPTS]
    names = [re.findall(r"^(?:const|let|function) (\w+)", text, re.MULTILINE) for text in texts]
    for place, text in enumerate(texts):
        below = set().union(*names[place + 1 :])
        assert below & set(re.findall(r"(?<![.\w-])\w+", text)) == set(), SCRIPTS[place]


def test_page_holds_numbers_of_six_digits_patterns_and_data(runs):
    held = payload(runs, "sweep")
    first = held["runs"][0]
    expected = next(run for run in runs if run.folder.name == "FedSUM-Uniform-0").metrics
    assert first["folder"] == "FedSUM-Uniform-0"
    assert first["columns"]["train_loss"] == pytest.approx(expected["train_loss"].tolist(), rel=1e-5)
    assert held["rounds"][first["at"]] == expected["round"].tolist()
    assert max(len(str(value)) for value in first["columns"]["train_loss"]) <= 8
    uniform, independent, biased = held["participation"]
    assert (uniform["title"], independent["clients"], biased["rounds"]) == ("Uniform (P1)", 20, 28)
    assert [row.count("9") for row in zip(*uniform["raster"], strict=True)] == [4] * 28
    measured = expected.set_index("round")["tau"]
    assert [uniform["tau"][done - 1] for done in measured.index[1:]] == measured.tolist()[1:]
    assert uniform["tau_max"] == max(uniform["tau"])
    (digits,) = held["data"]
    assert np.array(digits["counts"]).sum() == digits["samples"] == 1500
    assert held["last"] == "7"
    assert held["targets"]["test_accuracy"]["digits"] > 0.5


def test_page_draws_arrivals_only_where_they_do_not_depend_on_messages(tmp_path):
    task = fedsum.tasks.Quadratic.random(8, 50)
    for name, up in (("free", math.inf), ("slow", fedsum.LogUniform(2, 200))):
        devices = fedsum.Devices(seconds_per_step=fedsum.LogUniform(1, 10), up=up)
        schedule = fedsum.Asynchronous(8, devices, buffer=2)
        options = {"local_steps": 3, "eta_l": 0.01, "folder": tmp_path / name}
        history = fedsum.simulate(task, fedsum.FedBuff(), schedule, rounds=40, **options)
        (pattern,) = payload(read_runs(tmp_path / name), "sweep")["participation"]
        if name == "free":
            assert (pattern["tau_max"], pattern["tau_avg"]) == (history.delays.max, history.delays.avg)
        else:
            assert "sizes of their messages" in pattern["skipped"]


def test_page_names_all_windows_of_final_values(tmp_path):
    for rounds in (28, 400):
        made(tmp_path, rounds=rounds)
    assert payload(read_runs(tmp_path), "sweep")["last"] == "7 to 50"


def test_page_says_what_it_leaves_out(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSUM_CACHE", str(tmp_path / "none"))
    monkeypatch.delenv("FEDSUM_DATA", raising=False)
    trace = made(tmp_path, schedule="Trace", fields={"path": "x.csv"}, task={"name": "mnist", "clients": 20})
    own = made(tmp_path, task={"name": "quadratic"}, metrics=table(test_accuracy=[np.nan, np.inf, 0.5]))
    negative = made(tmp_path, task=TASK | {"alpha": -1.0})
    file = made(tmp_path, task={"name": "own.py:shops"})
    held = payload([trace, own, negative, file], "left out")
    assert (
        "an existing file ending in .csv"
        in next(each for each in held["participation"] if each["schedule"] == "Trace")["skipped"]
    )
    skipped = {each["title"]: each["skipped"] for each in held["data"]}
    assert skipped["MNIST"] == "The images of mnist are not on this machine."
    assert skipped["quadratic"] == "Only image data sets are drawn, and quadratic is none."
    assert skipped["shops"] == "own.py:shops is a task of your own: the report does not import its code."
    assert "alpha = -1.0" in skipped["digits"]
    assert [run["columns"]["test_accuracy"] for run in held["runs"] if run["folder"] == own.folder.name] == [
        [None, None, 0.5]
    ]


def test_data_is_at_hand_if_given_or_decoded(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSUM_CACHE", str(tmp_path))
    monkeypatch.setenv("FEDSUM_DATA", str(tmp_path / "given"))
    assert data.at_hand("digits")
    assert not data.at_hand("mnist")
    for split in ("train", "test"):
        path = tmp_path / "given" / "ylecun" / "mnist" / "mnist" / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert data.at_hand("mnist")
    (tmp_path / "svhn.safetensors").touch()
    assert data.at_hand("svhn")


def test_a_pattern_of_other_sizes_for_other_tasks_is_drawn_for_each(tmp_path):
    larger = made(tmp_path, fields={"n": 50, "size": 10}, task={"name": "other"})
    held = payload([made(tmp_path), larger], "sizes")
    assert [each["title"] for each in held["participation"]] == ["Uniform (P1), digits", "Uniform (P1), other"]


def test_the_papers_largest_figure_stays_small(tmp_path):
    rounds = np.unique(np.r_[0:2001:10, 1840:2001])
    noise = np.random.default_rng(0).random((len(rounds), 6))
    columns = ("train_loss", "test_accuracy", "communication", "bytes", "seconds", "eval_seconds")
    rows = pd.DataFrame({"round": rounds, **dict(zip(columns, noise.T, strict=True))}).to_dict("records")
    config = configured(rounds=2000, fields={"n": 100, "size": 20})
    (tmp_path / "config.toml").write_text(toml(config))
    many = [
        Run(tmp_path, "finished", 2000, "", config | {"algorithm": {"name": f"A{a}"}, "seed": seed}, rows)
        for a in range(24)
        for seed in range(3)
    ]
    assert len(render(many, "large")) < 4e6


def test_page_refuses_before_it_reads(tmp_path, sweep):
    with pytest.raises(InputError, match=r"a file ending in \.html"):
        write_page(sweep, tmp_path / "report.png")
    with pytest.raises(InputError, match="a file in an existing folder"):
        write_page(sweep, tmp_path / "nowhere" / "report.html")


def test_report_command(sweep, tmp_path, monkeypatch, capsys):
    from fedsum import cli
    from fedsum.cli import console as consoles

    monkeypatch.chdir(tmp_path)
    for arguments, code in (([str(sweep)], 0), ([str(tmp_path / "empty")], 2)):
        for console in (consoles.out, consoles.err):
            monkeypatch.setattr(console, "_file", None)
        monkeypatch.setattr(sys, "argv", ["fedsum", "report", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code == code
    captured = capsys.readouterr()
    assert f"report: {tmp_path / 'report.html'}" in captured.out
    assert captured.err.startswith("error: folder = ")
    assert (tmp_path / "report.html").exists()
