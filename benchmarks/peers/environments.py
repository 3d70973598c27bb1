"""A virtual environment for each peer: their pins clash with each other's and with fedsum's.

python benchmarks/peers/environments.py [--envs FOLDER]

Made once with pip, made again when a peer's constraints change. torch should come as the build without CUDA: it
saves gigabytes, and a CPU benchmark needs no more. Where pip finds it is pip's own configuration.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = Path.home() / ".cache" / "fedsum" / "peers"
PACKAGES = {"pfl": ["pfl[pytorch]", "torch", "numpy"], "flower": ["flwr[simulation]", "torch", "numpy"]}


def ensure(peer: str, folder: Path = FOLDER) -> Path:
    """The `bin` folder of the peer's environment, which is made if it is not there."""
    constraints, target = HERE / f"constraints-{peer}.txt", folder / peer
    stamp = target / "made-from.txt"
    if not stamp.exists() or stamp.read_text() != constraints.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", target], check=True, stdout=sys.stderr)
        pip = [target / "bin" / "python", "-m", "pip", "install", "--quiet", "-c", constraints]
        subprocess.run([*pip, *PACKAGES[peer]], check=True, stdout=sys.stderr)
        stamp.write_text(constraints.read_text())
    return target / "bin"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=Path, default=FOLDER, help=f"where they are kept ({FOLDER})")
    folder = parser.parse_args().envs
    for peer in PACKAGES:
        print(peer, ensure(peer, folder))


if __name__ == "__main__":
    main()
