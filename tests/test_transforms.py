"""Standardising and augmenting: the same as one image at a time, for any leading dimensions."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsum import InputError
from fedsum.base.keyed import Purpose, rng
from fedsum.tasks import Augment, Standardize

COLOUR = Standardize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


def bytes_of(*shape):
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))


def one_by_one(images, codes, crop, fill=None):
    """A literal implementation: pad with black or a colour, crop, mirror."""
    height, width = images.shape[-2:]
    done = torch.empty_like(images)
    for place in np.ndindex(images.shape[:-3]):
        dy, dx, mirrored = codes[place].tolist()
        padded = torch.zeros(images.shape[-3], height + 2 * crop, width + 2 * crop, dtype=images.dtype)
        if fill:
            padded += torch.tensor(fill, dtype=images.dtype)[:, None, None]
        padded[:, crop : crop + height, crop : crop + width] = images[place]
        cut = padded[:, dy : dy + height, dx : dx + width]
        done[place] = cut.flip(-1) if mirrored else cut
    return done


@given(
    lead=st.lists(st.integers(1, 4), max_size=3),
    image=st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 7)),
    crop=st.integers(0, 5),
    flip=st.booleans(),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from([torch.uint8, torch.float32]),
)
def test_augment_is_what_a_loop_over_images_does(lead, image, crop, flip, seed, dtype):
    augment = Augment(crop, flip)
    images = bytes_of(*lead, *image).to(dtype)
    codes = torch.from_numpy(augment.draw(rng(seed, Purpose.BATCHES), tuple(lead)))
    assert codes.shape == (*lead, 3)
    done = augment.apply(images, codes)
    assert done.dtype == dtype
    assert torch.equal(done, one_by_one(images, codes, crop))


@pytest.mark.parametrize("lead", [(5,), (3, 5), (2, 3, 5)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_one_crop_and_one_flip_per_batch_on_a_coloured_border(lead, dtype):
    augment = Augment(3, flip=True, per_batch=True, fill=(10, 200, 30))
    images = bytes_of(*lead, 3, 6, 7).to(dtype)
    codes = torch.from_numpy(augment.draw(rng(0, Purpose.BATCHES), lead))
    assert codes.shape == (*lead, 3)
    assert (codes == codes[..., :1, :]).all()
    batches = codes[..., 0, :].reshape(-1, 3).unique(dim=0)
    assert len(lead) == 1 or len(batches) > 1  # drawn anew for each batch
    assert torch.equal(augment.apply(images, codes), one_by_one(images, codes, 3, augment.fill))
    assert not torch.equal(augment.apply(images, codes), one_by_one(images, codes, 3))


def test_augment_draws_every_offset_and_flips_only_if_told():
    codes = Augment(2, flip=True).draw(rng(0, Purpose.BATCHES), (500, 10))
    assert codes.dtype == np.int64
    for column, values in enumerate([5, 5, 2]):
        shares = np.bincount(codes[..., column].ravel(), minlength=values) / 5000
        assert shares == pytest.approx(np.full(values, 1 / values), abs=0.03)
    assert not Augment(2).draw(rng(0, Purpose.BATCHES), (500,))[:, 2].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_standardize(dtype):
    x = bytes_of(2, 4, 3, 5, 6)
    mean, std = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (COLOUR.mean, COLOUR.std))
    expected = (x.double() / 255 - mean) / std
    done = COLOUR(x, dtype)
    assert done.dtype == dtype
    exact = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 0.03}[dtype]
    assert float((done.double() - expected).abs().max()) < exact
    assert torch.equal(COLOUR(x[1, 2], dtype), done[1, 2])


@pytest.mark.parametrize("options", [{}, {"per_batch": True, "fill": (1, 2, 3)}])
def test_both_are_traced_whole_and_vectorised(options):
    augment = Augment(2, flip=True, **options)
    images = bytes_of(3, 4, 3, 6, 6)
    codes = torch.from_numpy(augment.draw(rng(0, Purpose.BATCHES), (3, 4)))

    def both(images, codes):
        return COLOUR(augment.apply(images, codes), torch.float32)

    expected = both(images, codes)
    assert torch.equal(torch.vmap(both)(images, codes), expected)
    assert torch.equal(torch.compile(both, backend="eager", fullgraph=True)(images, codes), expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Augment(-1), "crop = -1"),
        (lambda: Augment(4, fill=(0, 256, 0)), "fill = 256: a whole number from 0 to 255"),
        (lambda: Standardize((0.5,), (0.1, 0.2)), "mean = (0.5,): 2 numbers"),
        (lambda: Standardize((0.5,), (0.0,)), "std = 0.0"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
