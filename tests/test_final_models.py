"""The final models of a fixed list of runs stay what they were, whatever the code around them looks like."""

import warnings

import final_models
import pytest
import torch
from safetensors.torch import load_file

STORED = load_file(final_models.STORED)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork of this process, which has threads
        return final_models.all_models(tmp_path_factory.mktemp("models"))


@pytest.mark.xdist_group("final_models")
@pytest.mark.parametrize("name", STORED)
def test_the_final_model_is_the_recorded_one(name, models):
    torch.testing.assert_close(models[name], STORED[name], rtol=0, atol=1e-10)


@pytest.mark.xdist_group("final_models")
def test_no_run_is_left_out(models):
    assert models.keys() == STORED.keys()
