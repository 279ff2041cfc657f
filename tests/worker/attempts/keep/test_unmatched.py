"""A pattern that matches nothing is said while the job runs, and at its end."""

import os
from pathlib import Path
import time

import pytest

from store.blobs.folder import BlobFolder
from tests.worker.attempts.output.relays import drain, texts
from torchyard.contract.attempts.rundir import RunDir
from worker.attempts.capture.capturing import roots
from worker.attempts.keep import unmatched
from worker.attempts.keep.unmatched import Unmatched
from worker.attempts.output.relay import Relay, RelayState
from worker.host import rundirs

PATTERNS = {"keep": ["results/*", "**/*.png"], "checkpoints": ["out/*.pt"]}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run" / "1")
    run.create()
    run.work.mkdir()
    return run


def unmatched_of(run: RunDir, *, age_s: float = 3600.0) -> Unmatched:
    (run.ranks / "0.json").touch()
    os.utime(run.ranks / "0.json", (time.time() - age_s,) * 2)
    return Unmatched(run.root.parent, roots(run), PATTERNS, began_ns=lambda: rundirs.began_ns(run), note="; a note")


def relay_of(run: RunDir, state: RelayState = RelayState(), *, age_s: float = 3600.0) -> Relay:  # noqa: B008
    blobs = BlobFolder(run.root.parent / "blobs")
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


def test_a_file_that_lies_in_another_folder_is_named_with_the_pattern_that_finds_it(run: RunDir) -> None:
    (run.work / "results").mkdir()
    (run.work / "results" / "a.png").touch()
    (run.work / "gan" / "out").mkdir(parents=True)
    (run.work / "gan" / "out" / "a.pt").touch()
    said = "nothing matches: 'out/*.pt' (checkpoints); 'gan/out/a.pt' matches '**/out/*.pt'; a note"
    assert texts(drain(relay_of(run), final=True)) == [said]


def test_nothing_is_said_of_a_young_attempt_or_if_all_match(run: RunDir) -> None:
    relay = relay_of(run)
    (run.ranks / "0.json").unlink()  # its packages are still being installed
    assert drain(relay) == []
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
