"""Distributes tests by pytest-xdist: the longest files first, and files that share a server to one process."""

from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

_FOLDER = Path(__file__).parent
_ONE_SERVICE = (
    "e2e/test_after.py",
    "e2e/test_artifacts.py",
    "e2e/test_asha.py",
    "e2e/test_cut_connections.py",
    "e2e/test_forged_records.py",
    "e2e/test_init_from.py",
    "e2e/test_intents.py",
    "e2e/test_jobs.py",
    "e2e/test_memory.py",
    "e2e/test_models.py",
    "e2e/test_own_code.py",
    "e2e/test_profile.py",
    "e2e/test_retention.py",
    "e2e/test_retry.py",
    "e2e/test_secrets.py",
    "e2e/test_stacks.py",
)
"""Their tests use the service that runs in `tests/e2e/conftest.py`."""
_LAUNCHES = (
    "worker/test_supervisor.py",
    "worker/test_supervisor_stops.py",
    "worker/test_supervisor_leftovers.py",
    "worker/test_torchrun.py",
    "worker/test_examples.py",
    "worker/test_bundle_attempts.py",
    "security/test_inside.py",
    "security/test_levels.py",
    "security/test_places.py",
    "worker/engines/test_conformance.py",
)
_WARM = "worker/engines/local/"
"""Theirs, and those of `_LAUNCHES`, use the warm process of `tests/worker/conftest.py`."""
_RANKS = ("trainer/", "torchyard/run/test_context.py")
"""Theirs are forked by the server of `tests/trainer/ranks.py`, which imports torch when it starts."""
_LONGEST = (
    *_ONE_SERVICE,
    *_LAUNCHES,
    "trainer/test_resume.py",
    "chaos/test_chaos.py",
    "worker/engines/local/warm/test_manager.py",
    "e2e/test_documented_commands.py",
    "e2e/test_recovery.py",
    "torchyard/cli/test_service.py",
    "torchyard/cli/test_watching.py",
    "torchyard/cli/test_up.py",
    "security/test_attacks.py",
    "security/test_strict_hostile.py",
    "security/test_strict.py",
    "failpoints/test_processes.py",
)
"""Those that take longest, with their groups; all others take less time."""


class FileScheduling(LoadFileScheduling):
    """Works as `--dist loadfile`, but keeps files together that use one service or one process to fork from."""

    def _split_scope(self, nodeid: str) -> str:
        path = super()._split_scope(nodeid)
        name = path.removeprefix("tests/")
        if name in _ONE_SERVICE:
            return "tests/e2e"
        if name in _LAUNCHES:
            return "launches"
        if name.startswith(_RANKS):
            return "ranks"
        return "warm" if name.startswith(_WARM) else path


def sort_longest_first(items: list[pytest.Item]) -> None:
    """Puts the longest files first, so that none of them runs alone at the end."""
    places = {_FOLDER / name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
