"""A virtual environment per peer, because the peers' pinned versions conflict with each other and with fedsum's.

python benchmarks/peers/environments.py [--peers pfl flower] [--envs FOLDER]
python benchmarks/peers/environments.py [--peers pfl flower] --site FOLDER [--python 3.12] [--pack]

Made with pip, and made again when a peer's constraints change. Configure pip to install torch without CUDA, which saves
gigabytes and is enough for a CPU benchmark.

`--site` makes no environment but one folder of packages per peer, without torch and numpy. A Python that has these uses
the folders on its path (`peers.py --site FOLDER`), on a machine where nothing can be installed. `--pack` also writes
each folder to FOLDER/PEER.tar.xz, without the parts of Ray that Flower does not use.
"""

import argparse
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = Path.home() / ".cache" / "fedsum" / "peers"
PACKAGES = {"pfl": ["pfl[pytorch]", "torch", "numpy"], "flower": ["flwr[simulation]", "torch", "numpy"]}
UNUSED = ("ray/jars", "ray/rllib", "ray/llm", "ray/dashboard/client")


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


def make_site(peer: str, folder: Path, python: str) -> Path:
    """The peer's packages for another machine's Python, in `folder/peer`."""
    target = folder / peer
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--no-compile", "--no-deps"]
    wheels = ["--only-binary=:all:", "--python-version", python, "--target", target]
    subprocess.run([*pip, *wheels, "-r", HERE / f"site-{peer}.txt"], check=True, stdout=sys.stderr)
    return target


def pack(folder: Path) -> Path:
    """The folder as one compressed file beside it."""

    def used(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if member.name.startswith(UNUSED) or "__pycache__" in member.name else member

    packed = folder.with_name(f"{folder.name}.tar.xz")
    with tarfile.open(packed, "w:xz") as file:
        for path in sorted(folder.iterdir()):
            file.add(path, arcname=path.name, filter=used)
    return packed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", default=list(PACKAGES), choices=PACKAGES)
    parser.add_argument("--envs", type=Path, default=FOLDER, help=f"where they are kept ({FOLDER})")
    parser.add_argument("--site", type=Path, help="make folders of packages here instead of environments")
    parser.add_argument("--python", default="3.12", help="the Python that will use the folders of packages")
    parser.add_argument("--pack", action="store_true", help="also write each folder to a compressed file")
    arguments = parser.parse_args()
    for peer in arguments.peers:
        made = make_site(peer, arguments.site, arguments.python) if arguments.site else ensure(peer, arguments.envs)
        print(peer, made)
        if arguments.site and arguments.pack:
            packed = pack(made)
            print(packed, f"{packed.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
