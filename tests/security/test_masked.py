"""The values of a job's secrets are in no row, wherever the job writes them."""

import json
import os
from pathlib import Path
import threading

import pytest

from store.attempts.facts import AttemptSecrets
from store.blobs.folder import BlobFolder
from store.output.facts import Batch, Room
from store.team import secrets
from tests.worker import eventfiles
from tests.worker.attempts.fixture import SimulatedRunnerFixture
from tests.worker.attempts.output.relays import storing
from torchyard.contract.attempts.events import (
    Card,
    CheckpointSaved,
    Message,
    Metric,
    Packages,
    Progress,
    Remeasured,
    Shown,
)
from torchyard.contract.attempts.records import ExitReport, Manifest
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.media.kinds import MediaKind
from torchyard.contract.states import EndReason, JobState, Reason
from torchyard.contract.telemetry.views import RankStacksView
from torchyard.run.publishing import publish
from worker.attempts.capture import capturing
from worker.attempts.keep.artifacts import Artifacts
from worker.attempts.output.relay import Relay
from worker.attempts.records import AttemptRecords
from worker.host.mask import Mask

VALUE = "correct-horse.battery_staple"
ODD = 'tab\tquote"back\\slash'


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's secrets."""
    resolve_as(monkeypatch, {"KEY": VALUE, "ODD": ODD})


def resolve_as(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> None:
    def resolve(*_: object) -> AttemptSecrets:
        return AttemptSecrets(values)

    monkeypatch.setattr(secrets, "resolve", resolve)


def write_everything(run: RunDir) -> None:
    """Writes the value into everything that is relayed."""
    lines = (
        Metric(time=1, step=1, values={f"loss/{VALUE}": 0.5, "acc": 1.0}),
        Message(time=2, text=f"uses {VALUE}", level="warning"),
        Card(time=3, values={VALUE: {"in": [VALUE, {VALUE: 1}]}}),
        Packages(time=3, values={VALUE: "1", "torch": VALUE}),
        Progress(time=4, step=1, total_steps=2),
        CheckpointSaved(time=5, name=VALUE),
        CheckpointSaved(time=5, name="metrics"),
        Remeasured(time=5, name="metrics", metrics={f"m/{VALUE}": 1.0}),
        CheckpointSaved(time=5, name="file"),
        CheckpointSaved(time=5, name=f"none-{VALUE}"),
        Shown(time=6, key=f"k/{VALUE}", kind=MediaKind.IMAGE, step=1, files={"image": f"{VALUE}.png"}),
        Shown(time=6, key=f"k/{VALUE}", kind=MediaKind.TEXT, step=1, caption=VALUE, data={"text": VALUE[:21]}),
        Shown(time=6, key="t", kind=MediaKind.TABLE, step=1, classes=[ODD], data={"columns": [VALUE], "rows": [[ODD]]}),
    )
    publish(run.checkpoints, VALUE, {"state.pt": b"1"}, Manifest(step=1, files=[]))
    publish(run.checkpoints, "metrics", {"state.pt": b"2"}, Manifest(step=2, metrics={f"m/{VALUE}": 1.0}, files=[]))
    publish(run.checkpoints, "file", {"state.pt": b"3", VALUE: b"4"}, Manifest(step=3, files=[]))
    (run.checkpoints / f"{VALUE} with a space").mkdir()
    odd = json.dumps({"type": "none", "text": ODD})
    run.events.write_text(
        "".join(line.to_json() + "\n" for line in lines) + f"{odd}\n{VALUE}\n{'x' * 300_000}{VALUE}\n"
    )
    for name in ("rank-0", "launcher", "setup"):
        for stream in ("stdout", "stderr"):
            run.log(name, stream).write_text(f"{name}: {VALUE} {ODD!r} {json.dumps(ODD)}\n" + "y" * 16_370 + VALUE)
    folder = run.artifacts / "tb" / VALUE
    eventfiles.write(run.artifacts / "tb" / eventfiles.NAME, eventfiles.scalars(f"tag/{VALUE}", {1: 0.5}))
    eventfiles.write(folder / eventfiles.NAME, eventfiles.scalars(f"tag{ODD}", {1: 0.5}) + b"damaged" * 20)
    long = eventfiles.scalars(VALUE + "z" * 300, {1: 0.5})
    eventfiles.write(run.artifacts / f"long{'_' * 150}{VALUE}" / eventfiles.NAME, long)
    (run.artifacts / VALUE).write_text("a file")
    (run.artifacts / f"{'_' * 90}{VALUE}").symlink_to("elsewhere")
    (run.artifacts / f"{VALUE}{'_' * 80}").symlink_to("elsewhere")
    (run.artifacts / "plain").write_text("another")


@pytest.mark.usefixtures("secret")
def test_no_row_has_the_value_of_a_secret(simulated: SimulatedRunnerFixture) -> None:
    attempt = simulated.start_ranks()
    write_everything(simulated.run)
    attempt.report = ExitReport(
        reason=EndReason.USER_ERROR, message=f"E: {VALUE}", traceback=f"File\n{VALUE[3:]}", may_retry=False
    )
    assert simulated.wait_for_end().state == JobState.FAILED
    rows = {name: repr(found) for name, found in simulated.store.everything().items()}
    parts = (VALUE, VALUE[:20], VALUE[-20:], ODD, repr(ODD)[1:-1], json.dumps(ODD)[1:-1])
    assert [
        name for name, text in rows.items() if any(part in text or repr(part)[1:-1] in text for part in parts)
    ] == []
    assert "'metrics': {'m/***': 1.0}" in rows["checkpoints"]
    assert "'remeasured': {'m/***': 1.0}" in rows["checkpoints"]
    assert "'key': 'k/***'" in rows["media"]
    assert "'rows': [['***']]" in rows["media"]
    assert {"loss/***", "acc", "tag/***", "***/tag***"} <= {
        row["key"] for row in simulated.store.everything()["series"]
    }
    assert [row["path"] for row in simulated.store.everything()["artifacts"] if "events" not in row["path"]] == [
        "plain"
    ]
    told = "\n".join(simulated.messages())
    assert "checkpoint *** is not listed: its name, or that of one of its files, has the value of a secret" in told
    assert "*** (its path contains the value of a secret)" in told


@pytest.mark.usefixtures("secret")
def test_stacks_and_reasons_are_masked(simulated: SimulatedRunnerFixture) -> None:
    records = AttemptRecords(simulated.context.store, simulated.claim, leaving=threading.Event())
    records.read()
    records.store_stacks(1, 2, [RankStacksView(rank=0, text=f"File {VALUE}", note=f"cannot be asked: {VALUE}")])
    records.set_reason(Reason("starting", f"installs {VALUE}"))
    rows = repr(simulated.store.everything())
    assert "cannot be asked: ***" in rows
    assert "installs ***" in rows
    assert VALUE not in rows


def test_a_value_stays_masked_when_its_secret_changes(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = AttemptRecords(simulated.context.store, simulated.claim, leaving=threading.Event())
    for value in (VALUE, "another-value", ""):
        resolve_as(monkeypatch, {"KEY": value})
        records.read()
    assert records.mask.text(f"{VALUE} another-value") == "*** ***"


def test_a_captured_file_with_a_secret_in_its_path_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "LOOK_SHARE", 0)
    run = RunDir(tmp_path / "run")
    run.create()
    run.launch.write_text("{}")
    os.utime(run.launch, ns=(1, 1))
    odd = "se/cret+value=="
    for name in (f"{VALUE}.pt", "plain.pt", f"{odd}.pt", f"{'_' * 190}{VALUE}.pt"):
        (run.artifacts / name).parent.mkdir(exist_ok=True)
        (run.artifacts / name).write_bytes(b"x")
    blobs = BlobFolder(tmp_path / "blobs")
    relay = Relay(run, blobs, listed=(), world_size=1, patterns=["**/*.pt"], mask=Mask([VALUE, odd]))
    batches: list[Batch] = []
    while (batch := relay.read(final=True, completed=True)) is not None or relay.copying:
        if batch is not None:
            with storing(relay, batch):
                batches.append(batch)
    assert [file.path for batch in batches for new in batch.checkpoints for file in new.files] == ["plain.pt"]
    told = [event.data["text"] for batch in batches for event in batch.events]
    assert len(told) == 2, "one for each path, as it is shown"
    assert all("***" in text and "its path contains the value of a secret" in text for text in told)


def test_masked_artifacts_are_left_out_at_each_look(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.create()
    (run.artifacts / VALUE).mkdir()
    (run.artifacts / VALUE / "file").write_text("x")
    files = Artifacts(run, BlobFolder(tmp_path / "blobs"), room=lambda: Room((), None), mask=Mask([VALUE]))
    assert files.take(1 << 20) == []
    assert files.message() == (
        "1 of the files in artifacts is not stored: ***/file (its path contains the value of a secret)"
    )


def test_each_of_many_lines_of_a_value_is_masked() -> None:
    many = "\n".join(f"line-{number:06}" for number in range(3000))
    assert Mask([many] * 20).text(f"{many} line-000007 line-002999") == "*** *** ***"
