"""The wheels and the lock that the service serves, and that pip and uv refuse other bytes than the line names."""

from collections.abc import Generator
import csv
import hashlib
from io import BytesIO, StringIO
from pathlib import Path
import subprocess
import sys
from zipfile import ZipFile

import pytest
from uv import find_uv_bin

from api.installs.wheels import InstallFiles, Installs
from tests.api.service import ApiFixture
from tests.controller.notifications.certificates import certificate
from tests.rows import each_row
from tests.torchyard.client.fake_server import Answer, FakeServer, serving
from torchyard.contract.installs import DIGESTS_FILE, InstallDigests
from torchyard.contract.wire.version import own_version


@pytest.fixture(scope="module")
def made() -> Installs:
    return InstallFiles().get()


@pytest.fixture(scope="module")
def https(tmp_path_factory: pytest.TempPathFactory) -> Generator[FakeServer]:
    """A server with a certificate that nobody knows."""
    _, context = certificate(tmp_path_factory.mktemp("certificate"), "box-a")
    with serving() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        yield server


def test_the_files_are_named_with_their_digests_and_may_be_kept_for_ever(service: ApiFixture, made: Installs) -> None:
    listed = service.client.get("/install", headers={"Authorization": ""}).json()
    assert listed.pop("version") == own_version()
    for part, file in listed.items():
        answer = service.client.get(f"/install/{file['sha256']}/{file['name']}", headers={"Authorization": ""})
        assert answer.status_code == 200, part
        assert hashlib.sha256(answer.content).hexdigest() == file["sha256"]
        assert len(answer.content) == file["size"]
        assert "immutable" in answer.headers["Cache-Control"]
    assert listed["first"]["sha256"] == made.first.sha256, "each process makes the same bytes"


def test_other_names_and_digests_are_not_found(service: ApiFixture, made: Installs) -> None:
    sha256, name = made.lock.sha256, made.lock.name
    for path in (f"{sha256}/x", f"{'0' * 64}/{name}", f"{sha256}/..%2f{name}", f"..%2f..%2fetc/{name}", sha256):
        assert service.client.get(f"/install/{path}").status_code == 404, path


def test_the_first_wheel_has_the_digests_of_the_others_and_each_wheel_those_of_its_files(made: Installs) -> None:
    with ZipFile(BytesIO(made.first.content)) as first:
        digests = InstallDigests.from_json(first.read(DIGESTS_FILE))
    assert [file.sha256 for file in (digests.client, digests.server, digests.lock)] == [
        file.sha256 for file in (made.client, made.server, made.lock)
    ]
    for file, wanted in (
        (made.client, "torchyard/cli/join.py"),
        (made.client, "torchyard/cli/docs/operating/backup.md"),
        (made.server, "worker/__main__.py"),
    ):
        with ZipFile(BytesIO(file.content)) as wheel:
            names = {*wheel.namelist()}
            record = next(name for name in names if name.endswith("/RECORD"))
            assert {row[0] for row in csv.reader(StringIO(wheel.read(record).decode()))} == names
        assert wanted in names and DIGESTS_FILE not in names
    assert "api/requirements.lock" in names, "an installed service serves it, too"


def test_the_lock_names_neither_of_our_distributions_and_has_a_digest_of_each_package(made: Installs) -> None:
    lines = made.lock.content.decode().splitlines()
    packages = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert len(packages) > 50 and not [line for line in packages if line.startswith("torchyard")]
    assert all("==" in line and line.endswith("\\") for line in packages)


@each_row("tool", ["pip", "uv"])
def test_a_wheel_of_another_digest_is_refused(tool: str, https: FakeServer, made: Installs, tmp_path: Path) -> None:
    path = f"/install/{made.first.sha256}/{made.first.name}"
    address = f"127.0.0.1:{https.server_port}"
    url, target = f"https://{address}{path}#sha256={made.first.sha256}", tmp_path / tool
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--no-cache-dir",
        "--trusted-host",
        address,
    ]
    uv = [find_uv_bin(), "pip", "install", "--no-cache", "--python", sys.executable, "--allow-insecure-host", address]
    command = [*(pip if tool == "pip" else uv), "--no-deps", "--no-index", "--target", str(target), url]
    https.on(path, Answer(made.client.content))
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "hash" in refused.stderr.lower(), refused.stderr
    assert not (target / "torchyard").exists()
    https.on(path, Answer(made.first.content))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (target / DIGESTS_FILE).exists()
