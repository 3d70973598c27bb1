"""The rows of a run's CSV files, cut back to a checkpoint."""

import pytest

from fedsum.runs.csv_truncation import truncate_after


@pytest.mark.parametrize(
    ("content", "expected", "damaged"),
    [
        ("round,client\n0,1\n1,2\n2,0\n", "round,client\n0,1\n1,2\n", 0),
        ("round,client\n0,1\n1,2\n", "round,client\n0,1\n1,2\n", 0),
        ("round,client\n0,1\n1,2\n2,", "round,client\n0,1\n1,2\n", 0),
        ("round,client\n0,1\n1,\n1,x\n1\n1,2,3\n\n1,2\n", "round,client\n0,1\n1,2\n", 5),
        ('round,client\n0,1\n0,"1\n1,2\n', "round,client\n0,1\n1,2\n", 1),
        ("rounds,client\n0,1\n", "", 2),
        ("round,clients\n0,1\n", "", 2),
        ("round,client,\x00\n0,1,2\n", "", 2),
        ("round,client,n\ufffdme\n0,1,2\n", "", 2),
        ("round,client\n0,1,5\n1,2,5\n", "", 3),
        ("round,client\n2,0\n", "round,client\n", 0),
        ("", "", 0),
    ],
)
def test_what_stays(content, expected, damaged, tmp_path):
    path, warnings = tmp_path / "table.csv", []
    path.write_text(content)
    columns = truncate_after(path, 1, warnings.append, integers=("round", "client"))
    assert path.read_text() == expected
    assert columns == (["round", "client"] if expected else [])
    assert len(warnings) == bool(damaged)
    copy = tmp_path / "table.damaged.csv"
    assert copy.exists() == bool(damaged)
    if damaged:
        assert f"table.csv: {damaged} unreadable lines" in warnings[0]
        assert copy.read_text() == content


def test_a_missing_file_has_no_rows(tmp_path):
    assert truncate_after(tmp_path / "none.csv", 5, print) == []
    assert not list(tmp_path.iterdir())


def test_only_the_named_columns_must_hold_integers(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text('round,loss\n0,0.5\n1,"[1, 2]"\n2,\n3,0.1\n')
    assert truncate_after(path, 2, pytest.fail) == ["round", "loss"]
    assert path.read_text() == 'round,loss\n0,0.5\n1,"[1, 2]"\n2,\n'
