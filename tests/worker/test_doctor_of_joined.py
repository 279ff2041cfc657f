"""`torchyard doctor` on a machine that has joined a service: a line says what is wrong on the way to it."""

from collections.abc import Generator, Mapping
from pathlib import Path
import time
from types import MappingProxyType

import pytest

from api.server import certificate
from tests.api.service import TOKEN
from tests.databases import SQLiteDatabases
from tests.servers import free_port
from tests.torchyard.cli.service import Team, serving_team
from torchyard.client import Client, joining
from torchyard.contract.team.codes import parse_code
from torchyard.host import tls, trust
from torchyard.host.joined import JOINED_FILE, Joined, save
from worker.doctor import joined as doctor
from worker.doctor.findings import Finding, Status


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLiteDatabases) -> Generator[Team]:
    with serving_team(tmp_path_factory.mktemp("secured"), sqlite, tls=True) as team:
        yield team


@pytest.fixture(scope="module")
def joined(secured: Team) -> Joined:
    certificate = trust.fetch_certificate(secured.url)
    with Client(secured.url, TOKEN, certificate=certificate) as client:
        code = parse_code(client.workers.code("box-b").code)
    found = joining.redeem(secured.url, code, kind="worker")
    return Joined(
        url=secured.url,
        worker_id=found.view.worker_id or "",
        name=found.view.name,
        token=found.view.token,
        certificate=found.certificate,
    )


NO_CHANGE: Mapping[str, str] = MappingProxyType({})


def findings(
    folder: Path, joined: Joined, *, ahead_s: float = 0, changed: Mapping[str, str] = NO_CHANGE
) -> dict[str, Finding]:
    save(folder / JOINED_FILE, Joined.from_dict({**joined.to_dict(), **changed}))
    return {found.check: found for found in doctor.check_joined(folder, now=lambda: time.time() + ahead_s)}


def test_all_is_well_on_a_machine_that_has_just_joined(joined: Joined, tmp_path: Path) -> None:
    found = findings(tmp_path, joined)
    assert [*found] == ["name", "port", "certificate", "clock", "version", "token"]
    assert {each.status for each in found.values()} == {Status.OK}, found
    assert not any(joined.token in each.fact for each in found.values())


def test_each_thing_that_fails_has_its_line(joined: Joined, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(**changed: str) -> Finding:
        last = [*findings(tmp_path, joined, changed=changed).values()][-1]
        assert last.status is Status.FAILED and last.advice
        return last

    assert wrong(url="https://no-such-host.invalid:8000").check == "name"
    assert wrong(url=f"https://127.0.0.1:{free_port()}").check == "port"
    other = certificate_of_another(tmp_path)
    replaced = wrong(certificate=other)
    assert replaced.check == "certificate" and trust.shown(trust.fingerprint(joined.certificate or "")) in replaced.fact
    assert wrong(token=f"{joined.token}x").check == "token"
    for ahead_s, said in ((300, "ahead of"), (-300, "behind")):
        clock = findings(tmp_path, joined, ahead_s=ahead_s)["clock"]
        assert clock.status is Status.FAILED and said in clock.fact
    monkeypatch.setattr(doctor, "own_version", lambda: "0.2.0")
    assert findings(tmp_path, joined)["version"].status is Status.WARNING
    monkeypatch.setattr(doctor, "own_version", lambda: "0.3.0")
    version = findings(tmp_path, joined)["version"]
    assert version.status is Status.FAILED and "workers update" in version.advice
    (tmp_path / JOINED_FILE).unlink()
    assert next(doctor.check_joined(tmp_path)).check == "joined"


def certificate_of_another(folder: Path) -> str:
    files = tls.own(folder)
    certificate.ensure(files)
    return files.text()
