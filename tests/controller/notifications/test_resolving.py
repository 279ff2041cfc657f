"""Names are resolved in processes of their own, which end with the time: attacks first."""

from concurrent.futures import ThreadPoolExecutor
import os
from pathlib import Path

import pytest

from controller.notifications.addresses import Allowed
from controller.notifications.deliver import MOST_AT_ONCE
from controller.notifications.failure import NotDelivered
from controller.notifications.http import Http
from controller.notifications.resolving import resolved
from tests.approved import Approved

LONG_S = 120.0
"""More than any name takes here."""
SHORT_S = 0.5


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The `getaddrinfo` of other processes is in this file."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "sitecustomize.py"


@pytest.fixture
def hanging(system: Path) -> None:
    """Name servers never answer."""
    system.write_text("import signal, socket\nsocket.getaddrinfo = lambda *_, **__: signal.pause()\n")


@pytest.mark.usefixtures("hanging")
def test_a_name_that_is_never_resolved_ends_with_the_exchange_and_may_come_again() -> None:
    with pytest.raises(NotDelivered) as failed:
        Http(Allowed(), exchange_s=SHORT_S).post("https://hanging.test/", b"{}", headers={})
    assert not failed.value.final


@pytest.mark.usefixtures("hanging")
def test_names_that_are_never_resolved_leave_nothing_behind() -> None:
    before = _children()

    def resolve(number: int) -> None:
        with pytest.raises(TimeoutError):
            resolved(f"hanging-{number}.test", SHORT_S)

    with ThreadPoolExecutor(MOST_AT_ONCE) as senders:
        assert len([*senders.map(resolve, range(MOST_AT_ONCE))]) == MOST_AT_ONCE
    assert _children() <= before


def test_a_process_whose_own_clock_ends_it_is_too_late(system: Path, approved: Approved) -> None:
    system.write_text(
        "import signal, socket\nsocket.getaddrinfo = lambda *_, **__: signal.raise_signal(signal.SIGALRM)\n"
    )
    with pytest.raises(TimeoutError) as raised:
        resolved("slow.test", LONG_S)
    assert str(raised.value) == approved("message")


def test_who_asks_knows_no_secret(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHYARD_SMTP_PASSWORD", "secret")
    monkeypatch.setenv("RES_OPTIONS", "timeout:1")
    system.write_text("import os, sys\nsys.exit(' '.join(os.environ))\n")
    with pytest.raises(OSError, match="RES_OPTIONS") as failed:
        resolved("name.test", LONG_S)
    assert "TORCHYARD" not in str(failed.value)


@pytest.mark.parametrize("address", ["127.0.0.1", "8.8.8.8", "::1", "2606:4700::1111"])
def test_an_address_is_its_own_without_a_process(address: str) -> None:
    assert resolved(address, 0.0) == [address]


def test_the_system_knows_names() -> None:
    assert {*resolved("localhost", LONG_S)} <= {"127.0.0.1", "::1"}
    with pytest.raises(OSError, match="cannot be resolved"):
        resolved("no-such-host.invalid", LONG_S)


def _children() -> set[str]:
    return {
        pid for task in Path(f"/proc/{os.getpid()}/task").iterdir() for pid in (task / "children").read_text().split()
    }
