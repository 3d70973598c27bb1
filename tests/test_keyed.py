from fedsum.base.keyed import Purpose, rng, torch_seed


def test_every_part_of_the_key_matters():
    keys = [(s, p, t, i) for s in (0, 1) for p in Purpose for t in (0, 1) for i in (0, 1)]
    drawn = [tuple(rng(*key).integers(2**60, size=4)) for key in keys]
    assert len(set(drawn)) == len(keys)
    assert len({torch_seed(*key) for key in keys}) == len(keys)
    assert drawn == [tuple(rng(*key).integers(2**60, size=4)) for key in keys]
