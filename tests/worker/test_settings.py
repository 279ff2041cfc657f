"""The settings of a worker, from the environment."""

from datetime import timedelta

import pytest

from store.rows.limits import OutputLimits
from torchyard.contract.errors import ConfigError
from worker.settings import Settings


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("KEEP_LOGS", "30", "90s, 15m, 24h or 7d"),
        ("KEEP_RUNS", "-1d", "90s, 15m, 24h or 7d"),
        ("KEEP_RUNS_BYTES", "-1", "greater than or equal to 0"),
        ("KEEP_LOGS_BYTES", "10GB", "valid integer"),
        ("MAX_LOG_BYTES", "64MiB", "valid integer"),
        ("MAX_MESSAGE_BYTES", "-1", "greater than or equal to 0"),
    ],
)
def test_an_invalid_variable_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(f"TORCHYARD_{name}", value)
    with pytest.raises(ConfigError, match=f"^TORCHYARD_{name}: ") as caught:
        Settings.load()
    assert expected in caught.value.message
    assert "\n" not in caught.value.message


def test_everything_is_kept_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_output_of_an_attempt_is_limited_unless_the_variables_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.load().output_limits == OutputLimits(log_bytes=64 << 20, message_bytes=4 << 20)
    monkeypatch.setenv("TORCHYARD_MAX_LOG_BYTES", "1000")
    monkeypatch.setenv("TORCHYARD_MAX_MESSAGE_BYTES", "")
    assert Settings.load().output_limits == OutputLimits(log_bytes=1000, message_bytes=None)
