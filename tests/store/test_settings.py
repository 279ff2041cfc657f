"""The settings of every program, from the environment."""

from datetime import timedelta

import pytest

from store.settings import Settings
from torchyard.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("PORT", "65536", "less than or equal to 65535"),
        ("PORT", "http", "valid integer"),
        ("HEAD_TIMEOUT_S", "0", "greater than 0"),
        ("STALL_TIMEOUT_S", "nan", "finite"),
        ("ALLOWED_HOSTS", "https://yard.example.com", "neither scheme nor port"),
        ("ALLOWED_HOSTS", "yard.example.com:443", "neither scheme nor port"),
        ("ALLOWED_HOSTS", "a.example, *b.example", "'*b.example' is no name"),
        ("SENDFILE", "nginx", "x-accel-redirect:/LOCATION"),
        ("SENDFILE", "X-Sendfile", "x-accel-redirect:/LOCATION"),
        ("SENDFILE", "x-accel-redirect:blobs", "x-accel-redirect:/LOCATION"),
        ("KEEP_LOGS", "30", "90s, 15m, 24h or 7d"),
        ("KEEP_RUNS", "-1d", "90s, 15m, 24h or 7d"),
        ("KEEP_RUNS_BYTES", "-1", "greater than or equal to 0"),
        ("KEEP_LOGS_BYTES", "10GB", "valid integer"),
    ],
)
def test_a_wrong_variable_is_named_with_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(f"TORCHYARD_{name}", value)
    with pytest.raises(ConfigError, match=f"^TORCHYARD_{name}: ") as caught:
        Settings.load()
    assert says in caught.value.message
    assert "\n" not in caught.value.message


def test_every_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHYARD_PORT", "x")
    monkeypatch.setenv("TORCHYARD_MAX_CONNECTIONS", "0")
    with pytest.raises(ConfigError, match=r"TORCHYARD_PORT: .*; TORCHYARD_MAX_CONNECTIONS: "):
        Settings.load()


def test_names_are_read_without_their_spaces_and_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHYARD_ALLOWED_HOSTS", " Yard.Example.com,, *.lab.example ")
    assert Settings.load().host_names == {"yard.example.com", "*.lab.example"}


def test_everything_is_kept_unless_it_is_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept() -> list[object]:
        found = Settings.load()
        return [value for name, value in found if name.startswith("keep_")]

    assert kept() == [None] * 6
    names = ("LOGS", "LOGS_BYTES", "EVENTS", "EVENTS_BYTES", "RUNS", "RUNS_BYTES")
    for name in names:
        monkeypatch.setenv(f"TORCHYARD_KEEP_{name}", "")
    assert kept() == [None] * 6
    for name in names:
        monkeypatch.setenv(f"TORCHYARD_KEEP_{name}", "0" if name.endswith("BYTES") else "30d")
    assert kept() == [timedelta(days=30), 0] * 3
