"""How pytest-xdist deals the tests out: by files, the longest first, those of one service to one process."""

from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

_FOLDER = Path(__file__).parent
_ONE_SERVICE = ("e2e/test_intents.py", "e2e/test_jobs.py", "e2e/test_retention.py", "e2e/test_retry.py")
"""Their tests use the service that runs in `tests/e2e/conftest.py`."""
_LONGEST = (
    "chaos/test_chaos.py",
    *_ONE_SERVICE,
    "cli/test_service.py",
    "e2e/test_survival.py",
    "failpoints/test_processes.py",
)
"""The longest first. What is not here takes less than these."""


class Dealer(LoadFileScheduling):
    """As `--dist loadfile`, but the files of one service are dealt out together."""

    def _split_scope(self, nodeid: str) -> str:
        path = super()._split_scope(nodeid)
        return "tests/e2e" if path.removeprefix("tests/") in _ONE_SERVICE else path


def sort(items: list[pytest.Item]) -> None:
    """Puts the longest files first, so that none of them is left when all others are done."""
    places = {_FOLDER / name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
