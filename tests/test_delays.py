"""The streaming delays against their definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsum import Availability, Explicit, InputError, Sampled, Uniform, delays


def by_definition(n, sets):
    """a_{i,t}, tau_t and the rest as section 2 of the paper defines them, in O(N T^2)."""

    def a(i, t):
        return max((j for j in range(t + 1) if i in sets[j]), default=-1)

    T = len(sets)
    tau = [max(t - a(i, t) for i in range(n)) for t in range(T)]
    gaps = [max(t - a(i, t) for t in range(T)) for i in range(n)]
    counts = [sum(i in s for s in sets) for i in range(n)]
    return tau, [a(i, T - 1) for i in range(n)], counts, gaps


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.sets(st.integers(0, n - 1)), min_size=1, max_size=20))
    )
)
def test_streaming_equals_the_definition(case):
    n, sets = case
    measured = delays(Explicit(n, sets), len(sets))
    tau, last, counts, gaps = by_definition(n, sets)
    assert measured.tau.tolist() == tau
    assert measured.max == max(tau)
    assert measured.avg == np.mean(tau)
    assert measured.last.tolist() == last
    assert measured.counts.tolist() == counts
    assert measured.gaps.tolist() == gaps
    assert measured.max == measured.gaps.max()


def test_full_participation_has_no_delay():
    measured = delays(Uniform(5, 5), 200)
    assert measured.max == measured.avg == 0


def test_long_runs_outgrow_the_first_buffer():
    measured = delays(Explicit(2, [[0]], repeat=True), 1000)
    assert measured.tau.tolist() == list(range(1, 1001))


def test_a_recorded_schedule_has_its_own_rounds():
    recorded = Explicit(3, [[0], [1], [0], [2]])
    for schedule in (recorded, Sampled(recorded, 1), Availability.of(recorded)):
        assert len(delays(schedule).tau) == 4
    with pytest.raises(InputError, match="rounds = None"):
        delays(Uniform(3, 1))
