"""What a program writes to `/tmp` goes on with its job, or its owner is told that it does not."""

from collections.abc import Callable
from dataclasses import replace
import os
from pathlib import Path
import socket

import pytest
from torch.distributed import FileStore

from tests.worker.attempt import Attempt, confinement
from tests.worker.attempts.fixture import INVENTORY
from torchyard.contract.attempts.events import Message, parse_line
from torchyard.contract.attempts.records import LaunchPlan, Sandbox
from torchyard.contract.attempts.rundir import FROM_TMP, RunDir
from torchyard.host.recordfiles import write_record
from worker.engines.base import Handle
from worker.engines.local.engine import LocalEngine
from worker.engines.local.supervisor import temporaries


@pytest.fixture
def attempt(attempt: Attempt) -> Attempt:
    """An attempt whose job has a working folder, and which sees its temporary folder in `/tmp`."""
    attempt.run.work.mkdir()
    attempt.own_folders.create()
    return attempt


def plan_of(attempt: Attempt) -> LaunchPlan:
    temporary = str(attempt.own_folders.temporary)
    shown = Sandbox(landlock=True, own_mounts=True, readable=[], writable=[], devices=[], temporary=temporary)
    return replace(attempt.plan(["true"]), sandbox=replace(shown, temporary_at=["/tmp", "/var/tmp"]))


def fill(folder: Path) -> None:
    (folder / "logs" / "deep").mkdir(parents=True)
    (folder / "logs" / "deep" / "losses.csv").write_bytes(bytes(3000))
    (folder / "logs" / "curve.png").write_bytes(bytes(1096))
    (folder / "best.pt").write_bytes(bytes(10_240))


def messages(run: RunDir) -> list[Message]:
    lines = run.events.read_text().splitlines() if run.events.exists() else []
    found = [parse_line(line) for line in lines if line]
    return [each for each in found if isinstance(each, Message)]


def test_the_next_attempt_finds_in_its_temporary_folder_what_this_one_left(attempt: Attempt) -> None:
    plan, temporary = plan_of(attempt), attempt.own_folders.temporary
    fill(temporary)
    temporaries.end(attempt.run, plan)
    assert not temporary.exists()
    assert (attempt.run.work / FROM_TMP / "logs" / "deep" / "losses.csv").stat().st_size == 3000
    (told,) = messages(attempt.run)
    assert (told.level, told.text) == (
        "info",
        "/tmp/best.pt (10.0 KiB), /tmp/logs/ (2 files, 4.0 KiB) are in the working folder now, in from-tmp/",
    )
    temporary.mkdir(parents=True)
    temporaries.begin(attempt.run, plan)
    assert sorted(each.name for each in temporary.iterdir()) == ["best.pt", "logs"]
    assert not (attempt.run.work / FROM_TMP).exists()


def test_what_libraries_leave_goes_without_a_word(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = attempt.own_folders.temporary
    for name in ("pymp-a1b2c3d4", "tmpk3_ab9x1", "torchinductor_ada", "ray", "torchelastic_1.x", "empty"):
        (temporary / name).mkdir()
        (temporary / name / "file").write_text("" if name == "empty" else "x")
    (temporary / "tmpabcdefgh.json").write_text("{}")
    (temporary / "none.log").touch()
    (temporary / "link").symlink_to("/etc/passwd")
    os.mkfifo(temporary / "pipe")
    monkeypatch.chdir(temporary)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("a.sock")
    FileStore(str(temporary / "meeting"), 2).set("rank", "0")
    temporaries.end(attempt.run, plan_of(attempt))
    assert messages(attempt.run) == []
    assert not temporary.exists() and not any(attempt.run.work.iterdir())


def test_what_would_stop_the_next_attempt_does_not_go_on_with_the_rest(attempt: Attempt) -> None:
    temporary = attempt.own_folders.temporary
    fill(temporary)
    store = FileStore(str(temporary / "meeting"), 2)
    store.set("rank", "0")
    (temporary / "pymp-a1b2c3d4").mkdir()
    os.mkfifo(temporary / "pipe")
    temporaries.end(attempt.run, plan_of(attempt))
    assert sorted(each.name for each in (attempt.run.work / FROM_TMP).iterdir()) == ["best.pt", "logs"]


def without_folder(run: RunDir) -> None:
    run.work.rmdir()


def with_a_link(run: RunDir) -> None:
    run.work.rmdir()
    run.work.symlink_to(run.job)


def with_a_full_place(run: RunDir) -> None:
    for name in (FROM_TMP, f"{FROM_TMP}-2"):
        (run.work / name).mkdir()
        (run.work / name / "theirs").touch()


@pytest.mark.parametrize("change", [without_folder, with_a_link, with_a_full_place])
def test_what_cannot_go_on_is_told(attempt: Attempt, change: Callable[[RunDir], None]) -> None:
    change(attempt.run)
    temporary = attempt.own_folders.temporary
    for number in range(1, 8):
        (temporary / f"run-{number}").mkdir()
        (temporary / f"run-{number}" / "x").write_bytes(bytes(number * 1024))
    temporaries.end(attempt.run, plan_of(attempt))
    (told,) = messages(attempt.run)
    assert told.level == "warning"
    assert told.text.startswith("not kept: /tmp/run-7/ (1 file, 7.0 KiB), /tmp/run-6/ (1 file, 6.0 KiB), ")
    assert told.text.endswith(", and 2 more: write to the working folder, or to $TORCHYARD_RUN_DIR")
    assert not temporary.exists() and not (attempt.run.job / FROM_TMP).exists()


def test_a_folder_that_the_program_has_made_there_stays_beside(attempt: Attempt) -> None:
    (attempt.run.work / FROM_TMP).mkdir()
    (attempt.run.work / FROM_TMP / "theirs").touch()
    fill(attempt.own_folders.temporary)
    temporaries.end(attempt.run, plan_of(attempt))
    assert (attempt.run.work / FROM_TMP / "theirs").exists()
    assert (attempt.run.work / f"{FROM_TMP}-2" / "best.pt").exists()
    assert "in from-tmp-2/" in messages(attempt.run)[0].text


@pytest.mark.parametrize("kind", ["link", "file"])
def test_only_a_folder_becomes_the_temporary_one(attempt: Attempt, kind: str) -> None:
    place = attempt.run.work / FROM_TMP
    _ = place.symlink_to(attempt.run.job) if kind == "link" else place.touch()
    temporaries.begin(attempt.run, plan_of(attempt))
    assert attempt.own_folders.temporary.is_dir() and not attempt.own_folders.temporary.is_symlink()
    assert os.path.lexists(place)
    attempt.own_folders.temporary.rmdir()


def test_a_closed_folder_goes_on_too(attempt: Attempt) -> None:
    plan, temporary = plan_of(attempt), attempt.own_folders.temporary
    fill(temporary)
    (temporary / "logs").chmod(0)
    temporary.chmod(0)
    temporaries.end(attempt.run, plan)
    (attempt.run.work / FROM_TMP).chmod(0)
    temporary.mkdir(parents=True)
    temporaries.begin(attempt.run, plan)
    assert (temporary / "best.pt").exists()


def test_a_supervisor_that_was_killed_leaves_nothing_behind(attempt: Attempt) -> None:
    folder = attempt.run.root.parent
    write_record(attempt.run.launch, plan_of(attempt))
    temporary = attempt.own_folders.temporary
    fill(temporary)
    runs = folder / "runs"
    runs.joinpath(attempt.job_id).mkdir(parents=True)
    attempt.run.root.rename(runs / attempt.job_id / str(attempt.number))
    attempt.run.work.rename(runs / attempt.job_id / "work")
    own = confinement(folder / "worker")
    engine = LocalEngine(runs, INVENTORY, confinement=own)
    assert engine.kill(Handle(attempt.key, 1)) is None
    assert not temporary.exists()
    assert (runs / attempt.job_id / "work" / FROM_TMP / "best.pt").exists()


def test_very_many_files_are_not_all_counted_and_all_go_on(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporaries, "_MOST_ENTRIES", 10)
    fill(attempt.own_folders.temporary)
    for number in range(50):
        (attempt.own_folders.temporary / "logs" / f"{number}").write_bytes(bytes(10))
        (attempt.own_folders.temporary / f"{number}").write_bytes(bytes(10))
    temporaries.end(attempt.run, plan_of(attempt))
    assert len([*(attempt.run.work / FROM_TMP).rglob("*")]) == 2 * 50 + 5
    assert len(messages(attempt.run)) == 1
