"""`fedsum fill`: tables and figures of Markdown pages, from runs."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sweeps import configured, write_run

from fedsum import InputError, pack
from fedsum.figures import COLOURS
from fedsum.report import fill

ROUNDS, BYTES_PER_ROUND = 100, 4e8


def curve(end, start=0.1, loss=None):
    """Metrics whose accuracy is `end` over the last 25 rounds, and rises to it linearly before."""
    rounds = np.arange(0, ROUNDS + 1, 5)
    accuracy = np.minimum(end, start + (end - start) * rounds / 75)
    table = {"round": rounds, "train_loss": 1 - accuracy if loss is None else loss, "test_accuracy": accuracy}
    return pd.DataFrame(table | {"communication": 40 * rounds, "bytes": BYTES_PER_ROUND * rounds})


ENDS = {
    ("FedSUM", "Uniform"): (0.91, 0.95),
    ("FedSUM", "Independent"): (0.90, 0.92),
    ("FedAvg", "Uniform"): (0.80, 0.94),
    ("FedAvg", "Independent"): (0.91, 0.71),
}


@pytest.fixture
def runs(tmp_path):
    for (algorithm, schedule), ends in ENDS.items():
        for seed, end in enumerate(ends):
            config = configured(algorithm, schedule, seed=seed, rounds=ROUNDS)
            write_run(tmp_path / "runs" / f"{algorithm}-{schedule}-{seed}", config, curve(end))
    return tmp_path / "runs"


def filled(folder, settings, check=False):
    page = folder / "page.md"
    page.write_text(f'# A page\n\n<!-- fedsum table\nruns = "runs"\n{settings}\n-->\nold\n<!-- end -->\n\nProse.\n')
    assert fill(page, check=check) == [3]
    text = page.read_text()
    assert text.startswith("# A page\n\n<!-- fedsum table\n")
    assert text.endswith("<!-- end -->\n\nProse.\n")
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"
    ], text


def test_final_values(runs, tmp_path):
    table, text = filled(tmp_path, 'columns = ["schedule"]\nspread = "range"')
    assert table == [
        ["algorithm", "Uniform (P1)", "Independent (P2)"],
        ["---", "---", "---"],
        ["FedSUM", "**91.0 to 95.0**", "**90.0 to 92.0**"],
        ["FedAvg", "80.0 to 94.0", "71.0 to 91.0"],
    ]
    assert "Test accuracy in %. Lowest to highest of 2 seeds." in text
    assert "means over the last 25 rounds" in text  # a quarter of 100
    table, _ = filled(tmp_path, 'columns = ["schedule"]\nspread = "std"\nvalues = ["train_loss", "test_accuracy"]')
    assert table[3] == ["FedAvg", "0.130 ± 0.0990 / 87.0 ± 9.9", "0.190 ± 0.141 / 81.0 ± 14.1"]
    assert table[2][1] == "**0.0700 ± 0.0283 / 93.0 ± 2.8**"  # the smaller loss is better
    table, _ = filled(tmp_path, 'rows = ["schedule", "algorithm"]\nwhere = {algorithm = "FedAvg"}')
    assert [row[0] for row in table[2:]] == ["Uniform (P1) · FedAvg", "Independent (P2) · FedAvg"]


def test_labels_can_be_renamed(runs, tmp_path):
    table, _ = filled(
        tmp_path, 'columns = ["schedule"]\nrename = {"Uniform (P1)" = "chosen"}\nwhere = {schedule = "chosen"}'
    )
    assert table[0] == ["algorithm", "chosen"]


def test_values_that_print_alike_are_all_bold(tmp_path):
    for algorithm, end in {"FedSUM": 0.9101, "FedSUMCR": 0.9102, "FedAvg": 0.5}.items():
        write_run(tmp_path / "runs" / algorithm, configured(algorithm, rounds=ROUNDS), curve(end))
    table, _ = filled(tmp_path, "")
    assert [row[1] for row in table[2:]] == ["**91.0**", "**91.0**", "50.0"]


def test_runs_that_diverged(tmp_path):
    for seed, state in enumerate(["finished", "diverged"]):
        config = configured("FedSUM", seed=seed, rounds=ROUNDS)
        write_run(tmp_path / "runs" / f"some-{seed}", config, curve(0.9), state=state)
        write_run(tmp_path / f"runs/none-{seed}", configured("MIFA", seed=seed, rounds=ROUNDS), curve(0.8))
    write_run(tmp_path / "runs/all", configured("FedAvg", rounds=ROUNDS), curve(0.9), state="diverged")
    table, text = filled(tmp_path, "")
    # A mean over the seeds that finished would flatter FedSUM.
    assert [row[1] for row in table[2:]] == ["90.0 (1 of 2 diverged)", "diverged", "**80.0**"]
    assert "Bold: best mean test accuracy of the column, of runs that all finished." in text
    table, _ = filled(tmp_path, 'values = ["test_accuracy", "train_loss"]')
    assert [row[1] for row in table[2:]] == ["90.0 / 0.100 (1 of 2 diverged)", "diverged", "**80.0 / 0.200**"]
    wins, _ = filled(tmp_path, 'kind = "wins"')
    assert [row[1] for row in wins[2:]] == ["1 without a result", "1 of 1, +10.0 to +10.0, 1 without a result"]


def test_wins(runs, tmp_path):
    table, text = filled(tmp_path, 'kind = "wins"\ncolumns = ["schedule"]')
    assert table[0] == ["FedSUM against", "Uniform (P1)", "Independent (P2)"]
    assert table[2:] == [["FedAvg", "2 of 2, +1.0 to +11.0", "1 of 2, -1.0 to +21.0"]]
    assert "margin in points" in text
    losses, _ = filled(tmp_path, 'kind = "wins"\ncolumns = ["schedule"]\nvalues = ["train_loss"]\nreference = "FedAvg"')
    assert losses[2:] == [["FedSUM", "0 of 2, -0.11 to -0.01", "1 of 2, -0.21 to +0.01"]]


def test_wins_over_seeds_of_tasks(tmp_path):
    for algorithm, ends in {"FedSUM": (0.9, 0.8), "FedAvg": (0.7, 0.81)}.items():
        for seed, end in enumerate(ends):
            config = configured(algorithm, rounds=ROUNDS)
            config["task"] = {**config["task"], "seed": seed}
            write_run(tmp_path / f"runs/{algorithm}-{seed}", config, curve(end))
    table, _ = filled(tmp_path, 'kind = "wins"')
    assert table[2] == ["FedAvg", "1 of 2, -1.0 to +20.0"]


def test_a_margin_that_rounds_to_zero_has_no_sign(tmp_path):
    for algorithm, end in {"FedSUM": 0.9100, "FedAvg": 0.91004}.items():
        write_run(tmp_path / "runs" / algorithm, configured(algorithm, rounds=ROUNDS), curve(end))
    table, _ = filled(tmp_path, 'kind = "wins"')
    assert table[2] == ["FedAvg", "0 of 1, 0.0 to 0.0"]


def test_metrics_of_the_servers_model_are_those_of_an_algorithm_with_one_model(tmp_path):
    write_run(tmp_path / "runs/FedAvg", configured("FedAvg", rounds=ROUNDS), curve(0.8))
    both = curve(0.1)
    both["server_test_accuracy"] = curve(0.9)["test_accuracy"]
    write_run(tmp_path / "runs/FedAWE", configured("FedAWE", rounds=ROUNDS), both)
    values = 'values = ["server_test_accuracy"]\n'
    for settings, expected in (
        ("", ["80.0", "**90.0**"]),
        (f'kind = "at_rounds"\nrounds = [{ROUNDS}]', ["80.0", "90.0"]),
    ):
        table, _ = filled(tmp_path, values + settings)
        assert [row[1] for row in table[2:]] == expected
    table, _ = filled(tmp_path, f'{values}kind = "rounds_to"\ntargets = {{digits = 0.75}}')
    assert "never" not in [row[1] for row in table[2:]]


def test_rounds_to_a_target(runs, tmp_path):
    settings = 'kind = "rounds_to"\ncolumns = ["schedule"]\ntargets = {digits = 0.905}'
    table, text = filled(tmp_path, settings)
    expected = {}
    for key, ends in ENDS.items():
        tables = [curve(end) for end in ends]
        expected[key] = [
            t["round"][t["test_accuracy"] >= 0.905].min() for t in tables if t["test_accuracy"].max() >= 0.905
        ]
    for row in table[2:]:
        for schedule, cell in zip(("Uniform", "Independent"), row[1:], strict=True):
            reached = expected[row[0], schedule]
            never = f", never in {2 - len(reached)} of 2" if len(reached) < 2 else ""
            assert cell == f"{np.mean(reached):.0f} ({np.mean(reached) * 0.04:.1f}){never}"
    assert "reaches 90.5% on digits" in text
    table, _ = filled(tmp_path, settings.replace("0.905", "0.99"))
    assert {cell for row in table[2:] for cell in row[1:]} == {"never"}


def test_bytes_to_a_target(runs, tmp_path):
    settings = 'kind = "rounds_to"\ncolumns = ["schedule"]\ntargets = {digits = 0.905}'
    in_rounds, _ = filled(tmp_path, settings)
    in_bytes, text = filled(tmp_path, settings + '\nx = "bytes"')
    assert "Gigabytes sent, and in brackets rounds, until the test accuracy reaches 90.5% on digits" in text
    for row, expected in zip(in_bytes[2:], in_rounds[2:], strict=True):
        for cell, rounds in zip(row[1:], (cell.partition(" ")[0] for cell in expected[1:]), strict=True):
            gigabytes, mean_rounds = re.match(r"([\d.]+) \((\d+)\)", cell).groups()
            assert mean_rounds == rounds
            assert float(gigabytes) == pytest.approx(int(rounds) * BYTES_PER_ROUND / 1e9, rel=0.02)


def test_values_at_rounds(runs, tmp_path):
    settings = 'kind = "at_rounds"\nrows = ["schedule"]\nwhere = {algorithm = "FedSUM"}\nrounds = [0, 100, 101]'
    table, text = filled(tmp_path, settings)
    assert table[0] == ["schedule", "round 0", "round 100", "round 101"]
    assert table[2:] == [["Uniform (P1)", "10.0", "93.0", ""], ["Independent (P2)", "10.0", "91.0", ""]]
    assert "Test accuracy in % by round." in text


def test_published_numbers_beside_ours(runs, tmp_path):
    (tmp_path / "published.csv").write_text("task,schedule,algorithm,value\ndigits,Uniform (P1),FedAvg,85.5\n")
    table, _ = filled(tmp_path, 'columns = ["schedule"]\nbeside = "published.csv"')
    assert table[0][:4] == ["algorithm", "Uniform (P1) published", "Uniform (P1) ours", "Uniform (P1) difference"]
    assert table[2:] == [
        ["FedSUM", "", "93.0", "", "", "91.0", ""],
        ["FedAvg", "85.5", "87.0", "+1.5", "", "81.0", ""],
    ]


def test_a_packed_file_gives_the_same_table(runs, tmp_path):
    _, text = filled(tmp_path, 'columns = ["schedule"]')
    pack(runs, tmp_path / "runs.parquet")
    page = tmp_path / "packed.md"
    page.write_text(text.replace('"runs"', '"runs.parquet"'))
    assert fill(page, check=True) == []


def test_check_changes_nothing(runs, tmp_path, fedsum):
    page = tmp_path / "page.md"
    page.write_text('<!-- fedsum table\nruns = "runs"\ncolumns = ["schedule"]\n-->\n<!-- end -->\n')
    before = page.read_text()
    code, _, error = fedsum("fill", "--check", page)
    assert code == 1
    assert "the table at line 1 is out of date" in error
    assert page.read_text() == before
    assert fedsum("fill", page)[0] == 0
    assert fedsum("fill", "--check", page)[0] == 0
    page.write_text(page.read_text().replace("95.0", "95.1").replace("93.0", "93.1"))
    assert fedsum("fill", "--check", page)[0] == 1


def test_figures_are_drawn_small(runs, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        '<!-- fedsum figure\nruns = "runs"\nfile = "curves.png"\ny = ["test_accuracy"]\n'
        'dash = "schedule"\n-->\n![](curves.png)\n'
    )
    assert fill(page, check=True) == []
    assert not (tmp_path / "curves.png").exists()
    assert fill(page) == []
    with Image.open(tmp_path / "curves.png") as image:
        assert image.mode == "P"
    assert page.read_text().endswith("![](curves.png)\n")


def test_a_small_figure_keeps_the_colours_of_its_lines(tmp_path):
    names = ["FedSUM", "FedSUMCR", "FedSUMB", "SCAFFOLD", "FedAvg", "FedAU", "FedAWE", "FedVARP", "MIFA"]
    for number, name in enumerate(names):
        for seed in (0, 1):
            metrics = curve(0.5 + 0.05 * number + 0.02 * seed)
            write_run(tmp_path / "runs" / f"{name}-{seed}", configured(name, seed=seed, rounds=ROUNDS), metrics)
    (tmp_path / "page.md").write_text('<!-- fedsum figure\nruns = "runs"\nfile = "curves.png"\n-->\n')
    fill(tmp_path / "page.md")
    with Image.open(tmp_path / "curves.png") as image:
        palette = np.array(image.getpalette()).reshape(-1, 3)
    for colour in COLOURS[: len(names)]:
        line = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
        assert abs(palette - line).max(1).min() <= 2, colour


def test_figures_against_a_setting(tmp_path):
    for rate in (0.1, 0.3):
        eta_l = {"name": "InverseSqrt", "eta_0": rate, "over": 10.0}
        write_run(tmp_path / "runs" / f"{rate}", configured("FedAvg", eta_l=eta_l, rounds=ROUNDS), curve(rate + 0.5))
    page = tmp_path / "page.md"
    block = '<!-- fedsum figure\nruns = "runs"\nfile = "rates.png"\nagainst = "setting"\n-->\n'
    widths = []
    for settings in (block, block.replace("-->", 'y = ["test_accuracy"]\n-->')):
        page.write_text(settings)
        fill(page)
        with Image.open(tmp_path / "rates.png") as image:
            widths.append(image.width)
    assert widths[1] < 0.8 * widths[0]  # one panel instead of two


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ('table\nruns = "runs"\n-->\n', "line 2 of page = 'page.md': block = 'table': a line <!-- end --> after it"),
        ('table\nruns = "runs"\n-->\n<!-- fedsum table\n-->\n<!-- end -->', "a line <!-- end --> after it"),
        ('table\nruns = "none"\n-->\n<!-- end -->', "a folder with runs in it"),
        ("table\n-->\n<!-- end -->", "runs = None"),
        ('table\nruns = "runs"\nkind = "finals"\n-->\n<!-- end -->', "did you mean 'final'"),
        ('table\nruns = "runs"\ncolums = ["task"]\n-->\n<!-- end -->', "did you mean 'columns'"),
        ('table\nruns = "runs"\nrows = ["client"]\n-->\n<!-- end -->', "rows = 'client'"),
        ('table\nruns = "runs"\nrows = ["task"]\n-->\n<!-- end -->', "two curves share a cell: add one of schedule"),
        ('table\nruns = "runs"\nwhere = {schedule = "Unifrm"}\n-->\n<!-- end -->', "did you mean 'Uniform (P1)'"),
        ('table\nruns = "runs"\nspread = "sd"\n-->\n<!-- end -->', "spread = 'sd'"),
        ('table\nruns = "runs"\nkind = "wins"\nreference = "FedSun"\n-->\n<!-- end -->', "did you mean 'FedSUM'"),
        ('table\nruns = "runs"\nkind = "rounds_to"\ntargets = {mnist = 1}\n-->\n<!-- end -->', "targets = 'mnist'"),
        (
            'table\nruns = "runs"\nbeside = "no.csv"\ncolumns = ["schedule"]\n-->\n<!-- end -->',
            "columns task, schedule",
        ),
        (
            'table\nruns = "runs"\nkind = "at_rounds"\nrows = ["algorithm", "schedule"]\n-->\n<!-- end -->',
            "rounds = []",
        ),
        ('figure\nruns = "runs"\n-->\n', "file = None: the PNG file to draw"),
        ('figure\nruns = "runs"\nfile = "a.pdf"\n-->\n', "a file ending in .png"),
        ('figure\nruns = "runs"\nfile = "a.png"\nagainst = "rate"\n-->\n', "against = 'rate'"),
        ("tabel\n-->\n", "'table' or 'figure'"),
        *(
            (f'table\nruns = "runs"\n{line}\n-->\n<!-- end -->', message)
            for line, message in [
                ("kind = 3", "kind = '3': known:"),
                ("values = []", "values = []: a list of at least one metric"),
                ('values = "test_accuracy"', "values = 'test_accuracy': a list of at least one metric"),
                ('values = ["test_acuracy"]', "values = 'test_acuracy': did you mean 'test_accuracy'"),
                ("columns = 5", "columns = 5: a list of facets"),
                ("where = {task = 5}", "where = {'task': 5}: a table with a label or a list of labels per facet"),
                ("rename = 5", "rename = 5: a table with a new label per label"),
                ("spread = 3", "spread = 3: text in quotes"),
                (
                    'kind = "rounds_to"\ntargets = {digits = "a"}',
                    "targets = {'digits': 'a'}: a table with a number per task",
                ),
                ('kind = "rounds_to"', "targets = {}: a table with a number per task"),
                ('kind = "wins"\ncolumns = ["algorithm"]', "columns = 'algorithm': known: schedule, setting, task"),
                ('kind = "at_rounds"\nrounds = 5', "rounds = 5: a list of whole numbers"),
            ]
        ),
        ('figure\nruns = "runs"\nfile = "a.png"\ny = 5\n-->\n', "y = 5: a name, or a list"),
        ("table\nruns = \n-->\n<!-- end -->", "Invalid value"),
    ],
)
def test_mistakes_in_a_block_are_refused(runs, tmp_path, block, message):
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n<!-- fedsum {block}\n")
    with pytest.raises(InputError) as caught:
        fill(page)
    assert message in str(caught.value)
    assert re.match(r"line [2-9] of page = 'page.md'", str(caught.value))


def test_a_page_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="a Markdown file"):
        fill(tmp_path / "none.md")


def test_the_delay_table(fedsum, tmp_path):
    arguments = ("reproduce", "delays", "--scale", "small", "--folder", "runs", "--rounds", 12, "--json")
    assert fedsum(*arguments)[0] == 0
    table, _ = filled(tmp_path, 'kind = "delay"')
    assert table[0] == ["pattern", "tau_max", "tau_avg", "mean delay", "error"]
    assert table[2][:4] == ["Uniform size=30", "0", "0", "0"]
    assert len(table) == 6
    page = Path(tmp_path / "page.md")
    page.write_text('<!-- fedsum figure\nruns = "runs"\nfile = "delay.png"\nagainst = "delay"\n-->\n')
    fill(page)
    assert (tmp_path / "delay.png").exists()
