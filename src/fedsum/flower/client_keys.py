"""Which public key belongs to which client: the file that `fedsum flower certs` writes."""

import tomllib
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

from ..base.checks import InputError


def read_client_keys(path: str | Path, n: int) -> dict[bytes, int]:
    """The client of each public key, the keys in the form that the SuperLink reports.

    Args:
      path: a TOML file with a table [clients] of id = OpenSSH public key.
      n: N; ids go from 0 to N - 1.
    """
    try:
        public_keys = tomllib.loads(Path(path).read_text(encoding="utf-8"))["clients"]
        pairs = [(_pem(key), int(client)) for client, key in public_keys.items()]
    except (OSError, KeyError, ValueError, AttributeError, UnsupportedAlgorithm) as error:
        accepted = f"a file with a table [clients] of id = public key, as in a .pub file ({error})"
        raise InputError("client-keys", str(path), accepted) from None
    keys: dict[bytes, int] = {}
    for key, client in pairs:
        if not 0 <= client < n:
            raise InputError("client-keys", client, f"ids from 0 to {n - 1}")
        if key in keys:
            raise InputError("client-keys", client, f"has the key of client {keys[key]}; each client needs its own")
        keys[key] = client
    return keys


def _pem(key: str) -> bytes:
    return load_ssh_public_key(key.strip().encode()).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
