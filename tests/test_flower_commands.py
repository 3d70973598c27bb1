"""`fedsum flower ...`: an app and keys that Flower accepts."""

import json
import pkgutil
import stat
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate

from fedsum import flower
from fedsum.cli import main


def fedsum(monkeypatch, *command):
    """The command's exit code."""
    monkeypatch.setattr(sys, "argv", ["fedsum", *map(str, command)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's
def test_init_writes_an_app_that_flower_accepts(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "My app-2"
    assert fedsum(monkeypatch, "flower", "init", folder) == 0
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    module = {f"my_app_2/{name}.py" for name in ("__init__", "task", "client_app", "server_app")}
    assert written == {"pyproject.toml", "README.md", "LICENSE", ".gitignore"} | module
    config, warnings = load_and_validate(folder / "pyproject.toml")
    assert not warnings
    assert config["tool"]["flwr"]["app"]["components"]["serverapp"] == "my_app_2.server_app:app"
    assert build_fab_from_disk(folder)
    assert not [path for path in folder.rglob("*.*") if "APP_" in path.read_text()]
    assert fedsum(monkeypatch, "flower", "init", folder) == 2
    assert "a new or empty folder" in capsys.readouterr().err
    assert fedsum(monkeypatch, "flower", "init", tmp_path / "7") == 2


def test_certs_are_for_this_host_and_keys_for_nobody_else(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "certs"
    assert fedsum(monkeypatch, "flower", "certs", folder, "--clients", 2, "--host", "server.example.org") == 0
    server = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
    server.verify_directly_issued_by(x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()))
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "server.example.org"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    for path in folder.glob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listed = tomllib.loads((folder / "clients.toml").read_text())["clients"]
    assert listed == {str(i): (folder / f"client-{i}.pub").read_text().strip() for i in range(2)}
    assert fedsum(monkeypatch, "flower", "certs", folder) == 2
    assert "a new or empty folder" in capsys.readouterr().err


def test_certificates_are_for_this_server_alone_and_expire(tmp_path):
    """trustme's certificates fail this test, so flower/certs.py makes its own."""
    hosts = ["flower_superlink", "::1", "10.0.0.7"]
    flower.write_certs(tmp_path / "certs", 1, hosts)
    ca, server = (
        x509.load_pem_x509_certificate((tmp_path / "certs" / f).read_bytes()) for f in ("ca.crt", "server.pem")
    )
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == hosts[:1]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == hosts[1:]
    usage = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    for certificate in (ca, server):
        assert timedelta(days=364) < certificate.not_valid_after_utc - datetime.now(UTC) <= timedelta(days=365)
    limits = [c.extensions.get_extension_for_class(x509.BasicConstraints).value for c in (ca, server)]
    assert [(limit.ca, limit.path_length) for limit in limits] == [(True, 0), (False, None)]


def test_without_flower_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fedsum.flower.requirement.find_spec", lambda name: None)
    for command in ("init", "certs"):
        assert fedsum(monkeypatch, "flower", command, tmp_path / command) == 2
        assert "pip install 'fedsum[flower]'" in capsys.readouterr().err
        assert not (tmp_path / command).exists()


def test_protocol_states_settings_and_tools_import_without_flower():
    """In a new process, because an import that has succeeded is not repeated."""
    names = ("protocol", "storage", "operators", "deployment", "certs", "client_keys", "app_template")
    code = "import sys; sys.modules['flwr'] = None\n" + "".join(f"import fedsum.flower.{name}\n" for name in names)
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_are_what_they_say():
    """Also after the modules were imported, because no module has the name of a public function or class."""
    for info in pkgutil.walk_packages(flower.__path__, "fedsum.flower."):
        import_module(info.name)
    for name in flower.__all__:
        assert getattr(flower, name).__name__ == name
        assert not isinstance(getattr(flower, name), ModuleType)
    with pytest.raises(AttributeError, match="has no attribute 'Door'"):
        flower.Door  # noqa: B018


def test_the_settings_of_a_deployment_are_in_the_documentation(monkeypatch, capsys):
    assert fedsum(monkeypatch, "flower", "settings") == 0
    out = capsys.readouterr().out
    assert ("on-loss" in out, "[algorithm]" in out) == (True, True)
    assert fedsum(monkeypatch, "flower", "settings", "--markdown") == 0
    table = capsys.readouterr().out.strip()
    assert table in (Path(__file__).parent.parent / "docs/reference/settings.md").read_text()
    assert fedsum(monkeypatch, "flower", "settings", "--json") == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out)} >= {"clients", "eta-l", "quorum", "deadline"}
