"""The tables of measurements in the documentation are those of benchmarks/results/."""

import pytest
from measured_tables import PAGES, TABLES, filled, names_in


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_measurements_are_those_of_their_data(page):
    text = page.read_text()
    assert names_in(text), "no table with a mark"
    assert text == filled(text), "python tests/measured_tables.py --write"


def test_every_table_is_in_a_page():
    assert sorted(name for page in PAGES for name in names_in(page.read_text())) == sorted(TABLES)


def test_a_changed_number_is_found():
    text = next(page for page in PAGES if page.stem == "performance").read_text()
    changed = text.replace("x |", "y |", 1)
    assert changed != text
    assert filled(changed) == text
