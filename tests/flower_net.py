"""A real SuperLink and real SuperNodes on 127.0.0.1, ended by their ids."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

BIN = Path(sys.executable).parent
APP = Path(__file__).parent / "flower_app"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(condition, seconds, what):
    until = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < until, f"{what}: not within {seconds} s"
        time.sleep(0.2)
    return result


class Net:
    """Processes that this test started, and a folder for their files."""

    def __init__(self, folder, *, certs=None, database=False):
        self.folder, self.certs = Path(folder), certs
        self.state = self.folder / "state"
        self.state.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.database = self.folder / "superlink.db" if database else None
        self.processes = {}
        self.within = ()
        """a command that starts the next processes, for example in a namespace"""
        self.environment = os.environ | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(self.folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "FEDSUM_TEST_STATE": str(self.state),
            "OMP_NUM_THREADS": "1",
        }
        (self.folder / "flwr").mkdir(exist_ok=True)
        link = {"address": f"127.0.0.1:{self.port}"}
        link |= {"root-certificates": str(certs / "ca.crt")} if certs else {"insecure": True}
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in link.items())
        config = f'[superlink]\ndefault = "test"\n\n[superlink.test]\n{lines}\n'
        (self.folder / "flwr" / "config.toml").write_text(config)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in list(self.processes):
            self.stop(name)

    def start(self, name, *command):
        with (self.folder / f"{name}.log").open("a") as log:
            self.processes[name] = subprocess.Popen(
                [*self.within, str(BIN / command[0]), *command[1:]],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.processes[name]

    def stop(self, name, *, hard=True):
        """Ends a process and its children, which are in its process group."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9 if hard else 15)
        process.wait(20)

    def superlink(self, *more):
        secure = ["--insecure"]
        if self.certs:
            secure = [f"--ssl-{kind}={self.certs / file}" for kind, file in _TLS.items()]
        more += (f"--database={self.database}",) if self.database else ()
        self.start(
            "superlink",
            *("flower-superlink", "--host=127.0.0.1", f"--port={self.port}"),
            *("--disable-runtime-dependency-installation", *secure, *more),
        )
        wait_for(self.answers, 60, "the SuperLink")

    def answers(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def supernode(self, client, *more, name=None, config=""):
        secure = ["--insecure"] if not self.certs else [f"--root-certificates={self.certs / 'ca.crt'}"]
        node_config = config or f'client-id={client} state="{self.state}"'
        return self.start(
            name or f"supernode-{client}",
            *("flower-supernode", f"--superlink=127.0.0.1:{self.port}", f"--port={free_port()}"),
            *("--node-config", node_config, *secure, *more),
        )

    def flwr(self, *command):
        done = subprocess.run(
            [str(BIN / "flwr"), *command], env=self.environment, cwd=self.folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, app=APP, **config):
        """Starts a run and returns the folder it will write to."""
        folder = self.folder / config.pop("folder", "run")
        settings = {"folder": str(folder), **{key.replace("_", "-"): value for key, value in config.items()}}
        overrides = " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
        self.flwr("run", str(app), "test", "--run-config", overrides, "--format", "json")
        return folder

    def faults(self, *faults):
        plan = [dict(zip(("t", "client", "kind"), fault, strict=True)) for fault in faults]
        (self.state / "faults.json").write_text(json.dumps(plan))

    def finished(self, folder, seconds):
        def state():
            path = folder / "status.toml"
            return path.exists() and 'state = "finished"' in path.read_text()

        try:
            wait_for(state, seconds, f"the run in {folder.name}")
        except AssertionError as error:
            log = (folder / "log").read_text() if (folder / "log").exists() else "no log"
            raise AssertionError(f"{error}\n{log}\n{(self.folder / 'superlink.log').read_text()[-3000:]}") from None


_TLS = {"ca-certfile": "ca.crt", "certfile": "server.pem", "keyfile": "server.key"}
