"""A virtual environment per peer, because the peers' pinned versions conflict with each other and with fedsum's.

python benchmarks/peers/environments.py [--envs FOLDER]

Made with pip, and made again when a peer's constraints change. Configure pip to install torch without CUDA, which saves
gigabytes and is enough for a CPU benchmark.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = Path.home() / ".cache" / "fedsum" / "peers"
PACKAGES = {"pfl": ["pfl[pytorch]", "torch", "numpy"], "flower": ["flwr[simulation]", "torch", "numpy"]}


def ensure(peer: str, folder: Path = FOLDER) -> Path:
    """The `bin` folder of the peer's environment, which is made if it does not exist."""
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
