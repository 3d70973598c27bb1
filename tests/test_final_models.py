"""The final models of a fixed list of runs equal the recorded ones."""

import warnings

import final_models
import torch
from safetensors.torch import load_file


def test_the_final_models_are_the_recorded_ones(tmp_path):
    recorded = load_file(final_models.STORED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork of this process, which has threads
        models = final_models.all_models(tmp_path)
    assert models.keys() == recorded.keys()
    for name, x in models.items():
        torch.testing.assert_close(x, recorded[name], rtol=0, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")
