"""A certificate authority, a server certificate and clients' keys, for TLS and authentication."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from ..base.checks import InputError, integer
from ..base.files import written_whole

# Not made with trustme: its authority is valid until the year 3000, its certificates may also sign code and
# authenticate clients, and it refuses host names with an underscore, which container networks use.
_VALID_DAYS = 365


def write_certs(folder: Path, clients: int, hosts: Sequence[str]) -> list[Path]:
    """Writes ca.crt, server.pem and server.key, client-i.key and client-i.pub for each client i, and clients.toml.

    The authority's private key is not saved. To get another certificate, write all files again.

    Args:
      folder: new or empty; nothing is overwritten.
      clients: N.
      hosts: names and addresses under which clients reach the server.

    Returns:
      The paths of all files written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sorted(path.name for path in write_certs(Path(folder, "keys"), clients=1, hosts=["127.0.0.1"]))
    ['ca.crt', 'client-0.key', 'client-0.pub', 'clients.toml', 'server.key', 'server.pem']
    """
    integer("clients", clients, low=1)
    if folder.exists() and any(folder.iterdir()):
        raise InputError("folder", str(folder), "a new or empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    authority = ec.generate_private_key(ec.SECP384R1())
    issuer = _name("fedsum test CA")
    ca = (
        _certificate(issuer, issuer, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA384())
    )
    server = ec.generate_private_key(ec.SECP384R1())
    certificate = (
        _certificate(_name(hosts[0]), issuer, server.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA384())
    )
    files = {"ca.crt": ca.public_bytes(Encoding.PEM), "server.pem": certificate.public_bytes(Encoding.PEM)}
    files["server.key"] = server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    lines = ["# The public key of each client. The setting `client-keys` of the app names this file.", "[clients]"]
    for client in range(clients):
        key = ec.generate_private_key(ec.SECP384R1())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        files |= {f"client-{client}.key": private, f"client-{client}.pub": public + b"\n"}
        lines.append(f'{client} = "{public.decode()}"')
    files["clients.toml"] = "\n".join(lines).encode() + b"\n"
    for name, content in files.items():
        with written_whole(folder / name) as part:
            part.touch(mode=0o600 if name.endswith(".key") else 0o644)
            part.write_bytes(content)
    return [folder / name for name in files]


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clients' clocks may be behind
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
