"""What a script sees of its process is the same under torchrun and in a fork of the warm process."""

from collections.abc import Iterator
from dataclasses import dataclass, field
import json
from pathlib import Path
from typing import Any

import pytest

from tests.worker.attempt import Attempt
from torchyard.contract.job import EndReason
from worker.engines.local import process
from worker.engines.local.warm.keeper import WarmProcess

View = dict[str, Any]

SCRIPT = Path(__file__).with_name("view.py").read_text()
OURS = {"trainer", "worker", "store", "api", "migrations", "tests", "bench"}
DIFFERENT = {
    "environment": {
        "MASTER_PORT",
        "TORCHELASTIC_ERROR_FILE",
    },  # the kernel's choice; torchrun's folder of a random name
    "modules": ...,  # more are loaded: all that torch needs, which a script that does not import it cannot see
    "filters of warnings": ...,  # before the script imports torch, which adds its own
    "seeds": ...,  # as in two fresh processes
    "random": ...,
}
"""What may differ, and why: some names of a mapping, or all of a value."""
WITH_DYNAMO = "sympy.utilities.exceptions.SymPyDeprecationWarning"
"""sympy, which comes with `torch._dynamo`, adds a filter for its own warning, and for no other."""


def _view(attempt: Attempt) -> Iterator[View]:
    attempt.start_job(SCRIPT, args=["--lr", "1", ""], env={"LAST": "x", "TZ": "Asia/Kolkata"})
    report = attempt.report()
    assert report.reason is EndReason.COMPLETED, report
    for rank in range(2):
        text = (attempt.run.job / f"view-{rank}.json").read_text()
        yield json.loads(text.replace(str(attempt.run.root), "RUN").replace(attempt.job_id, "JOB"))


@dataclass(frozen=True)
class Views:
    """Of each rank, by how they were started. Each way is gone once."""

    folder: Path
    warm: WarmProcess
    _found: dict[str, list[View]] = field(default_factory=dict[str, list[View]])

    def __getitem__(self, way: str) -> list[View]:
        if way not in self._found:
            self._found[way] = self._look(way)
        return self._found[way]

    def _look(self, way: str) -> list[View]:
        warm, launcher = None if way == "cold" else self.warm, "warm" if way == "warm" else "torchrun"
        attempt = Attempt.create(self.folder / way, warm=warm, launcher=launcher)
        try:
            return list(_view(attempt))
        finally:
            assert process.kill_attempt(attempt.job_id, attempt.number) == []


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory, warm_process: WarmProcess) -> Views:
    return Views(tmp_path_factory.mktemp("views"), warm_process)


@pytest.mark.parametrize("way", ["warm", pytest.param("agent", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_script_sees_its_process_as_under_torchrun(views: Views, rank: int, way: str) -> None:
    assert _different(views["cold"][rank], views[way][rank]) == {}


def test_every_module_that_a_fresh_rank_has_loaded_is_loaded_and_none_of_ours_but_torchyard(
    views: Views,
) -> None:
    for cold, warm in zip(views["cold"], views["warm"], strict=True):
        assert set(cold["modules"]) - set(warm["modules"]) == set()
        assert {name.partition(".")[0] for name in warm["modules"]} & OURS == set()


def test_a_rank_begins_with_its_logs_and_no_other_descriptor(views: Views) -> None:
    for rank, warm in enumerate(views["warm"]):
        logs = {str(number): f"RUN/job/logs/rank-{rank}.{name}" for number, name in ((1, "stdout"), (2, "stderr"))}
        assert warm["descriptors"] == {"0": "/dev/null", **logs}


@pytest.mark.parametrize("launcher", ["cold", "warm"])
def test_ranks_share_no_random_state(views: Views, launcher: str) -> None:
    first, second = views[launcher]
    for one, other in zip(first["random"] + first["seeds"], second["random"] + second["seeds"], strict=True):
        assert one != other


def _different(cold: View, warm: View) -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    for name in cold.keys() | warm.keys():
        may = DIFFERENT.get(name, set[str]())
        one, other = cold.get(name), warm.get(name)
        if name == "with those of torch":
            other = [item for item in warm[name] if WITH_DYNAMO not in item]
        if may is ... or one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            parts = one.keys() | other.keys()
            found |= {f"{name}: {part}": (one.get(part), other.get(part)) for part in parts - may}
        else:
            found[name] = one, other
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}
