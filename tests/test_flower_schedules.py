"""Random schedules of faults and attacks: at rest y is the sum of all h_i, whatever happened before."""

import pytest
from flower_events import failure, gap_after, random_schedule, shrunk

CHUNK = 250
"""schedules per test; each has its own case: algorithm, mode, quorum, bound, reproducible gradients"""


def run(seeds):
    """Runs one schedule per seed and returns the worst gap. Fails with the shrunk counterexamples."""
    worst, failures = 0.0, []
    for seed in seeds:
        schedule = random_schedule(seed)
        try:
            gap = gap_after(seed, schedule)
        except Exception:
            gap = float("inf")
        worst = max(worst, gap)
        if not gap <= 1e-9:  # also if it is not a number
            small = shrunk(seed, schedule)
            failures.append(f"seed {seed}: {failure(seed, small)} after {small}")
    assert not failures, "\n".join(failures)
    return worst


@pytest.mark.parametrize(
    ("case", "schedule"),
    [
        pytest.param(
            219,
            [("ask", 740), ("evict", 478), ("order_arrives", 846), ("state_is_deleted", 290), ("reply_arrives", 298)],
            id="the reply of a client that was evicted after it was asked",
        ),
    ],
)
def test_shrunk_counterexamples(case, schedule):
    assert not failure(case, schedule)


def test_a_few_schedules():
    assert run(range(CHUNK)) <= 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(1, 41))
def test_ten_thousand_schedules(chunk, capsys):
    worst = run(range(chunk * CHUNK, (chunk + 1) * CHUNK))
    with capsys.disabled():
        print(f"schedules {chunk * CHUNK} to {(chunk + 1) * CHUNK - 1}: worst gap {worst:.1e}")
