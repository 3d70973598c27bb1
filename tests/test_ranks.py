"""One run on several processes of torch.distributed."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rank_algorithms import final_models
from safetensors.torch import load_file

HERE = Path(__file__).parent
UNSHARE = ["unshare", "-rn"]
can_unshare = subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
pytestmark = pytest.mark.skipif(not can_unshare, reason="needs a network namespace of its own (unshare -rn)")
RUN = """
rounds = {rounds}
local_steps = 2
eta_l = 0.1
eval_every = 10
dtype = "float64"
engine = "loop"
checkpoint_rounds = 5
task = {{name = "digits", clients = 12, alpha = 1.0, refill = true}}
algorithm = "{algorithm}"
schedule = {{name = "Independent", p = 0.4}}
"""


def on_ranks(count, folder, *command, kill=0):
    start = [*UNSHARE, sys.executable, str(HERE / "ranks.py"), str(count), str(folder), str(kill), *map(str, command)]
    done = subprocess.run(start, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


def fedsum_run(folder, settings, ranks=2, **options):
    file = folder.with_suffix(".toml")
    file.write_text(settings)
    return on_ranks(ranks, folder, "-m", "fedsum", "run", file, "--folder", folder, **options)


def test_two_processes_equal_one_for_every_algorithm(tmp_path):
    output = on_ranks(2, tmp_path, HERE / "rank_algorithms.py", tmp_path)
    assert output.count("ended with 0") == 2, output
    one = final_models()
    first, second = (load_file(tmp_path / f"rank{rank}.safetensors") for rank in (0, 1))
    assert first.keys() == one.keys()
    for name, value in one.items():
        assert torch.equal(first[name], second[name]), name  # every rank has the server's state
        assert (first[name] - value).norm() <= 1e-12 * value.norm(), name
        assert torch.equal(first[name], first[name.replace(" again", "")]), name  # the same bits every time


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["FedSUM", "FedAWE", "MIFA"])
def test_a_killed_rank_ends_the_run_which_resumes_to_the_same_bits(algorithm, tmp_path):
    settings = RUN.format(rounds=120, algorithm=algorithm)
    output = fedsum_run(tmp_path / "whole", settings)
    assert output.count("ended with 0") == 2, output
    output = fedsum_run(tmp_path / "killed", settings, kill=10)
    assert "rank 1 ended with -9" in output
    assert "rank 0 ended with 1" in output
    assert "error: rank 0: another process of this run ended or cannot be reached (Read error" in output
    assert "start the same command again to resume" in output
    log = (tmp_path / "killed/log").read_text()
    assert "failed: rank 0: another process" in log
    output = fedsum_run(tmp_path / "killed", settings)
    assert output.count("ended with 0") == 2, output
    assert "resumed after round" in (tmp_path / "killed/log").read_text()
    for name in ("model", "checkpoint"):
        whole, killed = (load_file(tmp_path / f"{run}/{name}.safetensors") for run in ("whole", "killed"))
        for key, value in whole.items():
            if key.endswith(".ids"):
                assert sorted(value.tolist()) == sorted(killed[key].tolist())
            elif key.startswith(("clients.", "memory.")):
                order, other = (part[key.split(".")[0] + ".ids"].argsort() for part in (whole, killed))
                assert torch.equal(value[order], killed[key][other]), key
            elif key not in ("metrics", "crc32"):
                assert torch.equal(value, killed[key]), key


@pytest.mark.slow
def test_one_process_continues_what_two_began(tmp_path):
    settings = RUN.format(rounds=60, algorithm="SCAFFOLD")
    fedsum_run(tmp_path / "two", settings, kill=10)
    output = fedsum_run(tmp_path / "two", settings, ranks=1)
    assert output.count("ended with 0") == 1, output
    assert "resumed after round" in (tmp_path / "two/log").read_text()
    assert fedsum_run(tmp_path / "one", settings, ranks=1).count("ended with 0") == 1
    for name in ("model", "checkpoint"):  # the checkpoint has the states of all clients
        two, one = (load_file(tmp_path / f"{run}/{name}.safetensors") for run in ("two", "one"))
        order, other = (part.get("clients.ids", torch.empty(0)).argsort() for part in (two, one))
        for key, value in one.items():
            if key.startswith("clients."):
                assert torch.allclose(value[other].double(), two[key][order].double(), atol=1e-12), key
            elif key not in ("metrics", "crc32", "memory.ids"):
                assert torch.allclose(value.double(), two[key].double(), atol=1e-12), key


@pytest.mark.slow
def test_torchrun_runs_the_command(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(RUN.format(rounds=20, algorithm="FedSUM"))
    code = (
        "import os, sys; from ray_sweep import loopback_up; loopback_up();"
        "os.environ['GLOO_SOCKET_IFNAME'] = 'lo';"
        "from torch.distributed.run import main; main(sys.argv[1:])"
    )
    command = [*UNSHARE, sys.executable, "-c", code, "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    folder = tmp_path / "there"
    command += ["-m", "fedsum", "run", str(file), "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=HERE, check=False)
    assert done.returncode == 0, done.stderr
    assert 'state = "finished"' in (folder / "status.toml").read_text()
    assert done.stdout.count("finished") == 1  # one rank prints the result
    file.write_text(file.read_text() + "[sweep]\nseed = [0, 1]\n")
    done = subprocess.run(
        [*command[:-1], str(tmp_path / "sweep")], capture_output=True, text=True, cwd=HERE, check=False
    )
    assert "torchrun executes one run" in done.stderr
