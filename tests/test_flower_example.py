"""The commands of the app's README, unchanged, from an empty folder."""

import csv
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from flower_net import BIN, free_port


@pytest.mark.slow
def test_the_example_trains_mnist_over_tls_with_authentication(tmp_path):
    app = tmp_path / "example"
    path = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([str(BIN / "fedsum"), "flower", "init", str(app)], check=True)
    commands = (app / "README.md").read_text().split("## Without")[0]
    script = "set -e\n" + "\n".join(re.findall(r"```sh\n(.*?)```", commands, re.DOTALL))
    ports = {"8000": free_port(), "9100": free_port() // 2}  # the README's ports may be in use
    for port, free in ports.items():
        script = script.replace(port, str(free))
    settings = (
        (app / "pyproject.toml")
        .read_text()
        .replace("rounds = 30 ", "rounds = 12 ")
        .replace("eval-every = 5", "eval-every = 1")
    )
    (app / "pyproject.toml").write_text(settings)
    shell = subprocess.Popen(["bash", "-c", script], cwd=app, env=os.environ | path, start_new_session=True)
    try:
        assert shell.wait(1500) == 0
    finally:
        for log in sorted(app.glob("*.log")):
            print(log.name, log.read_text()[-2000:])
        if shell.poll() is None or (app / "pids").exists():
            os.killpg(shell.pid, signal.SIGKILL)
    with (app / "fedsum-run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[-1]["round"] == "12"
    assert float(rows[-1]["train_loss"]) < 0.7 * float(rows[0]["train_loss"])  # after only twelve rounds
    assert len(list(Path(app).glob("state-*"))) == 3
