"""The table of faults in docs/deploy/faults.md is that of the tests."""

from flower_rows import PAGE, page_with_table, rows


def test_the_table_of_faults_is_that_of_the_tests():
    assert len(rows()) >= 36
    assert PAGE.read_text() == page_with_table(), "python tests/flower_rows.py --write"
