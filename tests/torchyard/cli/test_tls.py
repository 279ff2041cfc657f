"""The certificate of `torchyard up --tls`, and which ones it refuses."""

from datetime import UTC, datetime, timedelta
import ipaddress
import os
from pathlib import Path
import socket
import stat

from cryptography import x509
from cryptography.hazmat.primitives import hashes
import pytest

from api.server import certificate as certificates
from tests import forks
from tests.controller.notifications.certificates import certificate
from tests.forked import run
from torchyard.contract.errors import ConfigError
from torchyard.host import tls, trust

forks.preload("torchyard.cli", "torchyard.cli.up.service")


def test_a_certificate_is_made_once_and_its_key_is_the_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = tls.own(tmp_path)
        certificates.ensure(made)
    finally:
        os.umask(before)
    made.check()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (made.key, made.key.parent)] == [0o600, 0o700]
    text = made.text()
    certificates.ensure(tls.own(tmp_path))
    assert made.text() == text
    found = x509.load_pem_x509_certificate(text.encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", socket.gethostname()} <= {*names.get_values_for_type(x509.DNSName)}
    assert ipaddress.ip_address("::1") in names.get_values_for_type(x509.IPAddress)
    now = datetime.now(UTC)
    assert found.not_valid_before_utc < now - timedelta(days=1)
    assert found.not_valid_after_utc > now + timedelta(days=3000)
    assert trust.fingerprint(text) == found.fingerprint(hashes.SHA256()).hex()


def test_a_certificate_that_no_server_can_use_is_refused_by_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        certificate(tmp_path / name, "localhost")
    (tmp_path / "text.pem").write_text("no certificate")
    for files, said in (
        (("a/certificate.pem", "b/key.pem"), "KEY_VALUES_MISMATCH|key values mismatch"),
        (("a/certificate.pem", "none.pem"), "No such file"),
        (("text.pem", "a/key.pem"), "text.pem"),
    ):
        found = tls.given(*(tmp_path / file for file in files))
        assert found is not None
        with pytest.raises(ConfigError, match=said):
            found.check()
    with pytest.raises(ConfigError, match="--tls-key"):
        tls.given(tmp_path / "a" / "certificate.pem", None)


def test_a_start_with_a_key_of_another_certificate_changes_nothing(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        certificate(tmp_path / name, "localhost")
    files = (f"--tls-cert={tmp_path}/a/certificate.pem", f"--tls-key={tmp_path}/b/key.pem")
    done = run("torchyard.cli", "up", "--port=0", f"--data-dir={tmp_path}/data", *files, env=os.environ, cwd=Path.cwd())
    assert done.returncode == 1
    assert f"{tmp_path}/b/key.pem" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()
