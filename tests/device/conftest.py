"""Fixtures of the tests on the simulated device."""

from pathlib import Path

import pytest

from tests.device import build


@pytest.fixture(scope="session")
def library() -> Path:
    """The built device. Tests are skipped where it cannot be built."""
    reason = build.missing()
    if reason is not None:
        pytest.skip(reason)
    return build.built()
