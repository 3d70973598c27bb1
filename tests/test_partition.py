"""Partitions: every sample once, with the documented distribution, refused if a client would have no samples."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsum import InputError
from fedsum.tasks import Partition
from fedsum.tasks.partition import by_column, class_dirichlet, dirichlet, iid, shards

TEN = np.repeat(np.arange(10), 6000)
DIRICHLETS = [dirichlet, class_dirichlet]


@st.composite
def any_split(draw):
    """A function of the seed that splits some labels, and these labels."""
    labels = np.array(draw(st.lists(st.integers(0, 6), min_size=1, max_size=60)))
    n = draw(st.integers(1, len(labels)))
    alpha = draw(st.floats(1e-6, 1e6))
    per_client = draw(st.integers(1, len(labels) // n))
    column = draw(st.lists(st.integers(-3, 3), min_size=len(labels), max_size=len(labels)))
    ways = [
        (lambda seed: dirichlet(labels, n, alpha, seed, refill=True), n),
        (lambda seed: class_dirichlet(labels, n, alpha, seed, refill=True), n),
        (lambda seed: iid(len(labels), n, seed, labels), n),
        (lambda seed: shards(labels, n, per_client, seed), n),
        (lambda seed: by_column(column, labels), len(set(column))),
    ]
    return labels, *draw(st.sampled_from(ways))


@given(any_split(), st.integers(0, 2**64))
def test_every_sample_goes_to_exactly_one_client_and_no_client_is_empty(split, seed):
    labels, way, n = split
    partition = way(seed)
    assert partition.n == len(partition.parts) == n
    assert np.sort(np.concatenate(partition.parts)).tolist() == list(range(len(labels)))
    assert partition.sizes.min() >= 1
    assert partition.sizes.tolist() == partition.counts.sum(1).tolist()
    assert partition.counts.sum(0).tolist() == np.bincount(labels).tolist()
    for part in partition.parts:
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()
    again = way(seed)
    assert all(np.array_equal(a, b) for a, b in zip(partition.parts, again.parts, strict=True))


@pytest.mark.parametrize("way", [*DIRICHLETS, shards, lambda labels, n, _, seed: iid(len(labels), n, seed)])
def test_another_seed_gives_another_partition(way):
    first, second = (way(TEN, 10, 2, seed=seed) for seed in (0, 1))
    assert any(not np.array_equal(a, b) for a, b in zip(first.parts, second.parts, strict=True))


def literal(seed, alpha, n, client_wise):
    """Samples per client and label, by the paper's definition, before rounding."""
    draw = np.random.default_rng(seed)
    if client_wise:
        q = draw.dirichlet([alpha] * 10, n)
        share = q / q.sum(0)
    else:
        share = draw.dirichlet([alpha] * n, 10).T
    return share * 6000


@pytest.mark.parametrize("way", DIRICHLETS)
@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_dirichlets_are_distributed_as_the_literal_recipes(way, alpha):
    def spread(counts):
        return counts.sum(1).std(), (counts.max(1) / counts.sum(1)).mean()

    ours = np.mean([spread(way(TEN, 100, alpha, seed, refill=True).counts) for seed in range(60)], axis=0)
    theirs = np.mean([spread(literal(seed, alpha, 100, way is dirichlet)) for seed in range(60)], axis=0)
    assert ours == pytest.approx(theirs, rel=0.1)


def test_the_papers_sizes():
    sizes = [dirichlet(TEN, 100, 0.1, seed).sizes for seed in range(60)]
    assert all(s.mean() == 600 for s in sizes)
    assert np.mean([s.std() for s in sizes]) == pytest.approx(93, abs=10)


@pytest.mark.parametrize("way", DIRICHLETS)
def test_a_large_alpha_makes_all_clients_alike(way):
    assert way(TEN, 10, 1e6).counts == pytest.approx(np.full((10, 10), 600), abs=5)


@pytest.mark.parametrize("way", DIRICHLETS)
def test_a_tiny_alpha_shares_nothing_out_even_where_proportions_underflow(way):
    counts = way(TEN, 20, 1e-5, refill=True).counts
    # One label per client, and each label that no client drew goes to a single client.
    assert (counts > 0).sum() <= 20 + 10


@pytest.mark.parametrize(
    ("way", "labels", "n", "refilled"),
    [(dirichlet, np.arange(30), 30, [1] * 30), (class_dirichlet, np.zeros(50, dtype=int), 4, [1, 1, 1, 47])],
)
def test_an_empty_client_is_refused_or_refilled_from_the_largest(way, labels, n, refilled):
    with pytest.raises(InputError) as caught:
        way(labels, n, 1e-5)
    message = r"samples of client \d+ = 0: at least one: use a larger alpha, fewer clients or refill=True"
    assert re.fullmatch(message, str(caught.value))
    assert sorted(way(labels, n, 1e-5, refill=True).sizes.tolist()) == refilled


@pytest.mark.parametrize("way", DIRICHLETS)
def test_which_samples_of_a_label_a_client_gets_is_random(way):
    first = way(np.zeros(1000, dtype=int), 2, 1e6).parts[0]
    # Half of the samples, drawn from the whole set.
    assert first.mean() == pytest.approx(500, abs=50)


def test_labels_need_not_be_consecutive():
    assert dirichlet([3, 7] * 500, 2, 1e6).counts == pytest.approx(np.array([[0, 0, 0, 250, 0, 0, 0, 250]] * 2), abs=2)


def test_iid_sizes_differ_by_at_most_one():
    assert sorted(iid(103, 10).sizes.tolist()) == [10] * 7 + [11] * 3


def test_shards_hold_few_labels():
    partition = shards(TEN, 100, per_client=2)
    assert partition.sizes.tolist() == [600] * 100
    assert ((partition.counts > 0).sum(1) <= 2).all()


def test_columns_may_be_names_and_labels_tensors():
    partition = by_column(np.array(["b", "a", "b", "c"]), torch.tensor([0, 1, 2, 1]))
    assert [part.tolist() for part in partition.parts] == [[1], [0, 2], [3]]
    assert partition.counts.tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_plot_stacks_one_colour_a_label():
    partition = dirichlet(TEN, 7, 0.5)
    (ax,) = partition.plot().axes
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("client", "samples")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [str(k) for k in range(9, -1, -1)]
    outlines = [patch.get_data() for patch in ax.patches]
    heights = np.array([outline.values - outline.baseline for outline in outlines])
    assert np.array_equal(heights.T, partition.counts)
    assert outlines[-1].values == pytest.approx(partition.sizes)
    assert len({patch.get_facecolor() for patch in ax.patches}) == 10


def test_plot_of_many_labels_has_a_scale_and_of_none_no_legend(tmp_path):
    figure = shards(np.arange(200) % 40, 200, per_client=1).plot()
    assert [ax.get_ylabel() for ax in figure.axes] == ["samples", "label"]
    figure.savefig(tmp_path / "scale.png")
    (ax,) = iid(100, 5).plot().axes
    assert ax.get_legend() is None
    assert ax.patches[0].get_data().values.tolist() == [20] * 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dirichlet([0, 1], 0, 0.1), "n = 0: a whole number from 1 to 2 (the samples)"),
        (lambda: dirichlet([0, 1], 3, 0.1), "n = 3"),
        (lambda: dirichlet([0, 1], 1, 0), "alpha = 0: a finite number, at least 1e-06"),
        (lambda: dirichlet([0, 1], 1, 0.1, seed=-1), "seed = -1"),
        (lambda: dirichlet([0.5, 1], 1, 0.1), "labels = [0.5, 1]: a vector of whole numbers from 0 up"),
        (lambda: dirichlet([-1, 1], 1, 0.1), "labels = [-1, 1]"),
        (lambda: dirichlet([[0], [1, 2]], 1, 0.1), "labels = [[0], [1, 2]]"),
        (lambda: dirichlet([], 1, 0.1), "labels = []"),
        (lambda: class_dirichlet([0, 1], 1, float("nan")), "alpha = nan"),
        (lambda: iid(0, 1), "samples = 0"),
        (lambda: iid(3, 4), "n = 4: a whole number from 1 to 3"),
        (lambda: iid(3, 2, labels=[0, 1]), "labels of length = 2: 3, one per sample"),
        (lambda: shards([0, 1, 2], 2, per_client=2), "per_client = 2: a whole number from 1 to 1 (samples / n)"),
        (lambda: by_column([[1, 2]]), "values of shape = (1, 2)"),
        (lambda: by_column([1, 2], labels=[0]), "labels of length = 1"),
        (lambda: Partition([]), "parts = []: at least one client"),
        (lambda: Partition([[0], []]), "parts[1] = []"),
        (lambda: Partition([[0, 2]], labels=[0, 1]), "parts with sample = 2: samples from 0 to 1"),
        (lambda: iid(3, 2).counts, "labels = None"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
