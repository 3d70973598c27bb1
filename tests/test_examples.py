"""The examples run, on data they make themselves and without a network."""

import importlib.util
import json
import shutil
import warnings
from pathlib import Path

import pytest

import fedsum as package

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_hospitals(tmp_path):
    comparison = example("hospitals").main(tmp_path)
    assert (comparison.metric, comparison.methods) == ("test_auc", ["FedSUM", "SCAFFOLD", "FedAvg"])
    assert all(comparison.mean(method).mean > 0.8 for method in comparison.methods)
    assert (tmp_path / "auc.png").exists()


def test_image_folder(tmp_path):
    history = example("image_folder").main(tmp_path)
    assert len(history.per_client) == 10
    assert history.rows[-1]["test_accuracy"] > 0.5


def test_text_with_an_embedding():
    assert example("text_embedding").main().rows[-1]["test_accuracy"] > 0.9


def test_own_algorithm_with_a_sweep(fedsum, tmp_path):
    package.check(example("own_algorithm").FedAvgM())
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    code, out, error = fedsum("run", "examples/own_algorithm.toml", "--json")
    assert code == 0, error
    runs = json.loads(out)["runs"]
    assert ([run["state"] for run in runs.values()], len(runs)) == (["finished"] * 8, 8)
    code, out, _ = fedsum("compare", "runs/own_algorithm", "--by", "error", "--json")
    assert len(json.loads(out)["problems"][""]) == 4


def test_production_log_to_rates(tmp_path):
    with pytest.warns(UserWarning, match="the times are milliseconds"):
        found, history = example("production_log").main(tmp_path)
    assert (found["clients"], found["never_seen"]) == (40, 5)
    assert history.rows[-1]["test_accuracy"] > 0.5


def test_notebook(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / "first_steps.ipynb", as_version=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the kernel's libraries
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [cell["outputs"] for cell in notebook.cells if cell["cell_type"] == "code"]
    assert "FedSUM" in json.dumps(outputs[-2])
    assert "image/png" in outputs[-1][-1]["data"]
