"""The settings of the API, from the environment."""

import pytest

from api.settings import Settings
from tests.approved import Approved
from torchyard.contract.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "65536"),
        ("PORT", "http"),
        ("HEAD_TIMEOUT_S", "0"),
        ("STALL_TIMEOUT_S", "nan"),
        ("ALLOWED_HOSTS", "https://yard.example.com"),
        ("ALLOWED_HOSTS", "yard.example.com:443"),
        ("ALLOWED_HOSTS", "a.example, *b.example"),
        ("TRUSTED_PROXIES", "10.0.0.0/8, proxy.example.com"),
        ("TRUSTED_PROXIES", "10.0.0.1/8"),
        ("MAX_STOP_GRACE", "0s"),
        ("MAX_STOP_GRACE", "9999999999d"),
        ("MAX_IDLE_TIMEOUT", "0"),
        ("SENDFILE", "nginx"),
        ("SENDFILE", "X-Sendfile"),
        ("SENDFILE", "x-accel-redirect:blobs"),
    ],
)
def test_an_invalid_variable_is_named_with_its_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, approved: Approved
) -> None:
    monkeypatch.setenv(f"TORCHYARD_{name}", value)
    with pytest.raises(ConfigError, match=f"^TORCHYARD_{name}: ") as caught:
        Settings.load()
    assert caught.value.message == approved.of_row("message")
    assert "\n" not in caught.value.message


def test_every_invalid_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHYARD_PORT", "x")
    monkeypatch.setenv("TORCHYARD_MAX_CONNECTIONS", "0")
    with pytest.raises(ConfigError, match=r"TORCHYARD_MAX_CONNECTIONS: .*; TORCHYARD_PORT: "):
        Settings.load()


def test_spaces_and_case_of_host_names_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHYARD_ALLOWED_HOSTS", " Yard.Example.com,, *.lab.example ")
    assert Settings.load().host_names == {"yard.example.com", "*.lab.example"}
