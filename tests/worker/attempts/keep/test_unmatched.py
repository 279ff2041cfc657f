"""A pattern that matches nothing is said while the job runs, and at its end."""

from pathlib import Path
import time

import pytest

from store.blobs import Blobs
from tests.worker.attempts.output.test_relay import drain, texts
from torchyard.contract.rundir import RunDir
from worker.attempts.capture.capturing import roots
from worker.attempts.keep import unmatched
from worker.attempts.keep.unmatched import Unmatched
from worker.attempts.output.relay import Relay, RelayState

PATTERNS = {"keep": ["results/*", "**/*.png"], "checkpoints": ["out/*.pt"]}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run" / "1")
    run.create()
    run.work.mkdir()
    return run


def unmatched_of(run: RunDir, *, age_s: float = 3600.0) -> Unmatched:
    started_ns = time.time_ns() - int(age_s * 1e9)
    return Unmatched(run.root.parent, roots(run), PATTERNS, started_ns=lambda: started_ns, note="; a note")


def relay_of(run: RunDir, state: RelayState = RelayState(), *, age_s: float = 3600.0) -> Relay:  # noqa: B008
    blobs = Blobs(run.root.parent / "blobs")
    return Relay(run, blobs, state=state, listed=(), world_size=1, unmatched=unmatched_of(run, age_s=age_s))


def test_it_is_said_once_after_a_while_and_once_at_the_end_across_restarts(run: RunDir) -> None:
    (run.artifacts / "a.png").touch()
    relay = relay_of(run)
    batches = drain(relay)
    assert texts(batches) == ["nothing matches so far: 'results/*' (keep), 'out/*.pt' (checkpoints); a note"]
    assert drain(relay) == []
    relay = relay_of(run, RelayState.of(batches[-1].offsets))
    assert drain(relay) == []
    (run.work / "results").mkdir()
    (run.work / "results" / "file").touch()
    batches = drain(relay, final=True)
    assert texts(batches) == ["nothing matches: 'out/*.pt' (checkpoints); a note"]
    assert drain(relay, final=True) == drain(relay_of(run, RelayState.of(batches[-1].offsets)), final=True) == []


def test_nothing_is_said_of_a_young_attempt_or_if_all_match(run: RunDir) -> None:
    assert drain(relay_of(run, age_s=1.0)) == []
    for path in ("results/a.png", "out/a.pt"):
        (run.artifacts / path).parent.mkdir(exist_ok=True)
        (run.artifacts / path).touch()
    assert drain(relay_of(run)) == drain(relay_of(run), final=True) == []


def test_nothing_is_said_of_a_folder_of_very_many_files(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unmatched, "_MOST_ENTRIES", 3)
    for number in range(5):
        (run.artifacts / f"{number}").touch()
    assert unmatched_of(run).text(final=True) is None
