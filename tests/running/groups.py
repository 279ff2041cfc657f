"""Makes groups of tests: each is run by one worker, the longest first, so that none runs alone at the end."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest

_SERVICE = (
    "browser/test_page.py",
    "e2e/test_after.py",
    "e2e/test_artifacts.py",
    "e2e/test_asha.py",
    "e2e/test_cut_connections.py",
    "e2e/test_documented_commands.py",
    "e2e/test_forged_records.py",
    "e2e/test_hostile_media.py",
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
    "security/test_attacks.py",
    "torchyard/cli/test_service.py",
)
"""Their tests use the service of `tests/e2e/shared.py`."""
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
    "security/test_stores.py",
    "worker/engines/test_conformance.py",
    "worker/packages/test_attempts.py",
    "worker/test_parallel_examples.py",
    "worker/test_supervisor_pauses.py",
)
_WARM = "worker/engines/local/"
"""Theirs, and those of `_LAUNCHES`, use one warm process, whose start takes five seconds of a processor."""
_GUESS_S = 0.05
"""How long a test is taken to last whose file has no record."""


def make_groups(items: Sequence[pytest.Item], lengths: Mapping[str, float]) -> list[list[int]]:
    """Returns the indices of the items in groups. `lengths` are seconds by file; the order in a file stays."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    files: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for index, item in enumerate(items):
        file = item.nodeid.partition("::")[0]
        name = _group(file)
        groups[name].append(index)
        files[name][file] = lengths.get(file, files[name].get(file, 0) + _GUESS_S)
    for group in groups.values():
        group.sort(key=lambda index: items[index].nodeid.partition("::")[0])
    return [groups[name] for name in sorted(groups, key=lambda name: -sum(files[name].values()))]


def _group(file: str) -> str:
    name = file.removeprefix("tests/")
    if name in _SERVICE:
        return "service"
    return "launches" if name in _LAUNCHES or name.startswith(_WARM) else file
