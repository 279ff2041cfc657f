"""The best checkpoint of earlier attempts is copied into the run directory of the next one."""

from dataclasses import replace
from datetime import UTC, datetime
import errno
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from store.blobs.folder import BlobFolder
from store.output.checkpoints_facts import CheckpointFacts
from tests.worker.bundles.tars import folder_of
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.spec.spec import parse_spec
from torchyard.host import disk
from worker.attempts.prepare.best import BestBringer, BestSoFar


@pytest.fixture
def bringer(tmp_path: Path) -> BestBringer:
    run = RunDir(tmp_path / "run")
    run.create()
    return BestBringer(run, BlobFolder(tmp_path / "blobs"), lambda: None)


SAVED = datetime(2026, 1, 1, tzinfo=UTC)


def saved(bringer: BestBringer, step: int, value: float | None, *, attempt: int = 1) -> CheckpointFacts:
    content = f"state {step}".encode()
    blob = folder_of(bringer.blobs).add(BytesIO(content))
    files = [{"path": "state.pt", "size": blob.size, "sha256": blob.sha256}]
    metrics = {"val/loss": "NaN" if value is None else value}
    name = f"step-{step}"
    return CheckpointFacts(
        f"ckpt_{step}", attempt, name, None, False, step, metrics, value, files, None, None, None, 0, False, None, SAVED
    )


def bring(bringer: BestBringer, *found: CheckpointFacts, **spec: Any) -> BestSoFar | None:
    """Has the attempt resume from the first checkpoint."""
    whole = {"trainer": "image-classification", "config": {"data": {"source": "digits"}}, **spec}
    return bringer.bring(parse_spec(whole), found, resumed=found[0] if found else None)


def test_the_best_is_brought_beside_the_one_to_resume_from(bringer: BestBringer) -> None:
    best = bring(bringer, saved(bringer, 3, 0.5), saved(bringer, 2, 0.1), saved(bringer, 1, 0.3))
    assert best == BestSoFar(
        name="step-2", attempt=1, step=2, metrics={"val/loss": 0.1}, folder=str(bringer.run.input / "best")
    )
    assert (bringer.run.best / "state.pt").read_bytes() == b"state 2"


def test_all_parts_of_one_in_parts_are_brought(bringer: BestBringer) -> None:
    names = ("state.index.json", "state-00001-of-00002.safetensors", "state-00002-of-00002.safetensors")
    blobs = {
        name: folder_of(bringer.blobs).add(BytesIO(name.encode()))
        for name in (*names, "confusion.json", "a/b.safetensors")
    }
    files = [{"path": name, "size": blob.size, "sha256": blob.sha256} for name, blob in blobs.items()]
    assert bring(bringer, saved(bringer, 3, 0.5), replace(saved(bringer, 2, 0.1), files=files)) is not None
    assert {path.name: path.read_text() for path in bringer.run.best.iterdir()} == {name: name for name in names}


def test_the_earliest_of_equal_ones_is_the_best(bringer: BestBringer) -> None:
    best = bring(bringer, saved(bringer, 3, 0.5), saved(bringer, 2, 0.5))
    assert best is not None
    assert best.name == "step-2"


def test_the_mode_decides(bringer: BestBringer) -> None:
    found = (saved(bringer, 2, 0.5), saved(bringer, 1, 0.1))
    best = bring(bringer, *found, checkpoint={"mode": "max"})
    assert best is not None
    assert (best.name, best.folder) == ("step-2", str(bringer.run.resume))
    assert not bringer.run.best.exists()


@pytest.mark.parametrize(
    "spec",
    [
        {"trainer": "script", "config": {"code": "file:///code"}},
        {"config": {"data": {"source": "digits"}, "evaluation": {"remeasure_best": False}}},
    ],
)
def test_nothing_is_brought_to_who_measures_nothing_again(bringer: BestBringer, spec: dict[str, Any]) -> None:
    assert bring(bringer, saved(bringer, 2, 0.5), saved(bringer, 1, 0.1), **spec) is None
    assert not bringer.run.best.exists()


def test_without_a_number_none_is_the_best(bringer: BestBringer) -> None:
    assert bring(bringer) is None
    assert bring(bringer, saved(bringer, 2, None)) is None


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "full")


@pytest.mark.parametrize("trouble", ["damaged", "gone", "full"])
def test_a_best_that_cannot_be_brought_keeps_no_attempt_from_starting(
    bringer: BestBringer, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = (saved(bringer, 2, 0.5), saved(bringer, 1, 0.1))
    path = folder_of(bringer.blobs).path(found[1].files[0]["sha256"])
    if trouble == "damaged":
        path.write_bytes(b"noise")
    elif trouble == "gone":
        path.unlink()
    else:
        monkeypatch.setattr(disk, "require_free_space", no_space)
    best = bring(bringer, *found)
    assert best is not None
    assert (best.name, best.folder) == ("step-1", None)
