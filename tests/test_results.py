"""docs/results: every table is what its runs say, and the folder stays light."""

import re
from pathlib import Path

import pytest

from fedsum import read_runs
from fedsum.experiments import experiment
from fedsum.report import fill, write_page
from fedsum.runs import best
from fedsum.runs.sweep import expand

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs/results"
PAGES = sorted(RESULTS.glob("*.md"))
PACKED = sorted(RESULTS.glob("*.parquet"))
SUMMARY = "README.md"
MOST_FILES, MOST_BYTES, MOST_FIGURE_BYTES = 80, 6_000_000, 150_000
MOST_WORDS = {SUMMARY: 490}
MOST_NUMBERS = 3

# Names that contain digits, which are no numbers.
NAMES = re.compile(
    r"CIFAR-100?\b|ResNet-18|SST-2|H200|"
    r"P[123]\b|Case [1-4]|Theorem 1|Algorithm \d|seeds? \d(, \d)*( and \d)?|eta_0|x\^?\(?0"
)


def prose(page):
    """The words that a person wrote: no comments, tables, code, figures and link targets."""
    text = re.sub(r"<!-- fedsum table.*?<!-- end -->", "", page.read_text(), flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = "\n".join(line for line in text.splitlines() if not line.startswith(("|", "    ")))
    text = re.sub(r"`[^`]*`", "", text)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def test_the_folder_is_light():
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".md", ".png", ".parquet", ".csv"}
    assert len(files) <= MOST_FILES
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES
    heavy = {path.name for path in files if path.suffix == ".png" and path.stat().st_size > MOST_FIGURE_BYTES}
    assert not heavy


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_table_is_up_to_date(page):
    assert fill(page, check=True) == [], "write it with: fedsum fill docs/results/*.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_short(page):
    text = prose(page)
    assert len(text.split()) <= MOST_WORDS.get(page.name, 300)
    numbers = re.findall(r"(?<![\w.])\d[\d.,]*", NAMES.sub("", text))
    assert len(numbers) <= MOST_NUMBERS, numbers


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != SUMMARY], ids=lambda page: page.name)
def test_a_page_has_claim_figure_table_and_command_in_this_order(page):
    text = page.read_text()
    figure, command = text.find("!["), max(text.rfind("fedsum reproduce"), text.rfind("python benchmarks/"))
    assert 0 < figure < command
    claim = text[: text.index("![")].split("<!--")[0].partition("\n")[2].strip()
    assert claim, "a page begins with what was found"
    tables = text.find("<!-- fedsum table")
    assert tables < 0 or figure < tables < command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_table_is_typed_by_hand(page):
    text = re.sub(r"<!-- fedsum table.*?<!-- end -->", "", page.read_text(), flags=re.DOTALL)
    assert not [line for line in text.splitlines() if line.startswith("|")]


def test_every_packed_file_is_on_a_page():
    said = "".join(page.read_text() for page in PAGES)
    assert [path.name for path in PACKED if f'"{path.name}"' not in said] == []
    listed = (RESULTS / SUMMARY).read_text()
    assert [page.name for page in PAGES if page.name != SUMMARY and f"({page.name})" not in listed] == []


@pytest.mark.parametrize("path", PACKED, ids=lambda path: path.stem)
def test_a_report_opens_on_every_packed_file(path, tmp_path):
    page = write_page(path, tmp_path / "report.html").read_text()
    assert all(run.name in page for run in read_runs(path)[:3])


def test_methods_has_the_rates_of_its_search():
    runs = {run.name: run for run in read_runs(RESULTS / "methods-rates.parquet")}
    searched = expand(experiment("methods-rates")[0], Path())
    rows = experiment("methods")[0]["sweep"]["algorithm, eta_l.eta_0, eta_g"]
    assert len(rows) == len({str(plan.chosen["algorithm"]) for plan in searched})
    for algorithm, rate, eta_g in rows:
        group = [plan for plan in searched if plan.chosen["algorithm"] == algorithm]
        assert best(group, runs, "test_accuracy").settings == {
            "algorithm": algorithm,
            "eta_g": eta_g,
            "eta_l.eta_0": rate,
        }
