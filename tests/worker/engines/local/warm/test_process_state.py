"""A script sees the same process state under torchrun and in a fork of the warm process."""

from collections.abc import Iterator
from dataclasses import dataclass, field
import json
from pathlib import Path
from typing import Any

import pytest

from tests.processes import kill_attempt
from tests.worker.attempt import Attempt
from torchyard.contract.states import EndReason
from worker.engines.local.warm.manager import WarmProcess

State = dict[str, Any]

SCRIPT = Path(__file__).with_name("process_state.py").read_text()
OURS = {"trainer", "worker", "scheduling", "store", "api", "migrations", "tests", "bench"}
DIFFERENT = {
    "environment": {
        "MASTER_PORT",
        "TORCHELASTIC_ERROR_FILE",
    },  # chosen by the kernel; in a folder with a random name
    "modules": ...,  # a fork has also loaded the modules of torch, which a script that does not import it cannot see
    "filters of warnings": ...,  # torch adds filters, and a fork has imported it already
    "seeds": ...,  # they differ in two fresh processes, too
    "random": ...,
}
"""The differences that are allowed: some names of a mapping, or the whole value (`...`)."""
WITH_DYNAMO = "sympy.utilities.exceptions.SymPyDeprecationWarning"
"""sympy, which comes with `torch._dynamo`, adds a filter for its own warning, and for no other."""


def _start_and_read(attempt: Attempt, *, ranks: int) -> Iterator[State]:
    # With more than one thread, set_num_threads starts threads in a forked rank that a fresh rank does not have yet.
    env = {"LAST": "x", "TZ": "Asia/Kolkata", "OMP_NUM_THREADS": "1"}
    attempt.start_job(SCRIPT, args=["--lr", "1", ""], env=env, world_size=ranks)
    report = attempt.report()
    assert report.reason is EndReason.COMPLETED, report
    for rank in range(ranks):
        text = (attempt.run.job / f"state-{rank}.json").read_text()
        yield json.loads(attempt.normalized(text))


@dataclass(frozen=True)
class States:
    """The states of all ranks by their number and the way they were started. Each is started once."""

    folder: Path
    warm: WarmProcess
    _found: dict[tuple[str, int], list[State]] = field(default_factory=dict[tuple[str, int], list[State]])

    def of(self, way: str, *, ranks: int) -> list[State]:
        if (way, ranks) not in self._found:
            self._found[way, ranks] = self._read(way, ranks)
        return self._found[way, ranks]

    def _read(self, way: str, ranks: int) -> list[State]:
        warm, launcher = None if way == "cold" else self.warm, "warm" if way == "warm" else "torchrun"
        attempt = Attempt.create(self.folder / f"{way}-{ranks}", warm=warm, launcher=launcher)
        try:
            return list(_start_and_read(attempt, ranks=ranks))
        finally:
            assert kill_attempt(attempt.job_id, attempt.number) == []


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory, warm_process: WarmProcess) -> States:
    return States(tmp_path_factory.mktemp("states"), warm_process)


@pytest.mark.parametrize(
    ("torchrun", "way", "ranks"),
    [
        pytest.param("cold", "warm", 2, marks=pytest.mark.thorough),
        pytest.param("cold", "agent", 2, marks=pytest.mark.thorough),
        pytest.param("agent", "warm", 2, marks=pytest.mark.thorough),
        # torchrun is a fork, which saves one import of torch: its rank is a program of its own, and imports it
        ("agent", "warm", 1),
    ],
)
def test_a_script_sees_the_same_process_state_as_under_torchrun(
    states: States, torchrun: str, way: str, ranks: int
) -> None:
    for one, other in zip(states.of(torchrun, ranks=ranks), states.of(way, ranks=ranks), strict=True):
        assert _different(one, other) == {}


@pytest.mark.parametrize("torchrun", [pytest.param("cold", marks=pytest.mark.thorough), "agent"])
def test_a_fork_has_all_modules_of_a_fresh_rank_and_of_ours_only_torchyard(states: States, torchrun: str) -> None:
    (fresh,), (warm,) = states.of(torchrun, ranks=1), states.of("warm", ranks=1)
    assert set(fresh["modules"]) - set(warm["modules"]) == set()
    assert {name.partition(".")[0] for name in warm["modules"]} & OURS == set()


def test_a_rank_starts_with_its_logs_and_its_stacks_as_the_only_descriptors(states: States) -> None:
    for rank, warm in enumerate(states.of("warm", ranks=2)):
        logs = {str(number): f"RUN/job/logs/rank-{rank}.{name}" for number, name in ((1, "stdout"), (2, "stderr"))}
        kept = {"3": f"RUN/job/logs/rank-{rank}.order", "4": f"RUN/job/stacks/{rank}.txt"}
        assert warm["descriptors"] == {"0": "/dev/null", **logs, **kept}


@pytest.mark.parametrize(
    "launcher", [*(pytest.param(launcher, marks=pytest.mark.thorough) for launcher in ("cold", "agent")), "warm"]
)
def test_ranks_share_no_random_state(states: States, launcher: str) -> None:
    first, second = states.of(launcher, ranks=2)
    for one, other in zip(first["random"] + first["seeds"], second["random"] + second["seeds"], strict=True):
        assert one != other


def _different(cold: State, warm: State) -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    for name in cold.keys() | warm.keys():
        allowed = DIFFERENT.get(name, set[str]())
        one, other = cold.get(name), warm.get(name)
        if name == "with those of torch":
            other = [item for item in warm[name] if WITH_DYNAMO not in item]
        if allowed is ... or one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            parts = one.keys() | other.keys()
            found |= {f"{name}: {part}": (one.get(part), other.get(part)) for part in parts - allowed}
        else:
            found[name] = one, other
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}
