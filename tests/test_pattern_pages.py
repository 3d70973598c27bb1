"""docs/patterns.md has every pattern, with numbers and pictures that are up to date."""

import inspect

import pytest
from pattern_pages import ENTRIES, FOLDER, PAGE, digest, page, picture_data, schedules
from PIL import Image

import fedsum
from fedsum import participation

MOST_BYTES = 200_000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return schedules(tmp_path_factory.mktemp("patterns"))


def test_every_schedule_has_a_section():
    classes = {name: getattr(participation, name) for name in participation.__all__}
    schedule_names = {name for name, cls in classes.items() if inspect.isclass(cls) and hasattr(cls, "active")}
    assert {entry.name for entry in ENTRIES} == schedule_names - {"Schedule"}


def test_the_page_is_up_to_date(made):
    assert PAGE.read_text() == page(made), "python tests/pattern_pages.py"


def test_the_pictures_are_up_to_date(made):
    for name, schedule in made.items():
        with Image.open(FOLDER / f"{name}.png") as image:
            assert image.text["data"] == digest(*picture_data(schedule)), f"{name}: python tests/pattern_pages.py"
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES
    assert {path.stem for path in FOLDER.iterdir()} == set(made)


def test_another_schedule_has_another_picture():
    pictures = {digest(*picture_data(fedsum.Uniform(40, size))) for size in (7, 8)}
    assert len(pictures) == 2
