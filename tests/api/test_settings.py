"""The settings of the API, from the environment."""

import pytest

from api.settings import Settings
from torchyard.contract.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("PORT", "65536", "must be at most 65535"),
        ("PORT", "http", "must be a whole number"),
        ("HEAD_TIMEOUT_S", "0", "must be above 0"),
        ("STALL_TIMEOUT_S", "nan", "finite"),
        ("ALLOWED_HOSTS", "https://yard.example.com", "without scheme or port"),
        ("ALLOWED_HOSTS", "yard.example.com:443", "without scheme or port"),
        ("ALLOWED_HOSTS", "a.example, *b.example", "'*b.example' is not a host name"),
        ("TRUSTED_PROXIES", "10.0.0.0/8, proxy.example.com", "'proxy.example.com' is not an address or a network"),
        ("TRUSTED_PROXIES", "10.0.0.1/8", "host bits set"),
        ("MAX_STOP_GRACE", "0s", "must be at least 1s"),
        ("MAX_STOP_GRACE", "9999999999d", "90s, 15m, 24h or 7d"),
        ("MAX_IDLE_TIMEOUT", "0", "90s, 15m, 24h or 7d"),
        ("SENDFILE", "nginx", "x-accel-redirect:/LOCATION"),
        ("SENDFILE", "X-Sendfile", "x-accel-redirect:/LOCATION"),
        ("SENDFILE", "x-accel-redirect:blobs", "x-accel-redirect:/LOCATION"),
    ],
)
def test_an_invalid_variable_is_named_with_its_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(f"TORCHYARD_{name}", value)
    with pytest.raises(ConfigError, match=f"^TORCHYARD_{name}: ") as caught:
        Settings.load()
    assert says in caught.value.message
    assert "\n" not in caught.value.message


def test_every_invalid_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHYARD_PORT", "x")
    monkeypatch.setenv("TORCHYARD_MAX_CONNECTIONS", "0")
    with pytest.raises(ConfigError, match=r"TORCHYARD_MAX_CONNECTIONS: .*; TORCHYARD_PORT: "):
        Settings.load()


def test_spaces_and_case_of_host_names_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHYARD_ALLOWED_HOSTS", " Yard.Example.com,, *.lab.example ")
    assert Settings.load().host_names == {"yard.example.com", "*.lab.example"}
