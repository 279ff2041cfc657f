"""Files of the working folder that are no checkpoints are kept, and what is not kept is said."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
import errno
import hashlib
import os
from pathlib import Path

import pytest

from store.blobs.folder import BlobFolder, BlobWriter
from store.output.facts import NewArtifact, OutputLimits, Room, StoredArtifact
from tests.worker.attempts.output.relays import drain, texts
from torchyard.contract.attempts.rundir import WORK, RunDir
from worker.attempts.files import walking
from worker.attempts.keep import kept
from worker.attempts.keep.kept import Keeping, KeptFiles
from worker.attempts.output.relay import Relay, RelayState
from worker.host.looks import Match
from worker.host.mask import Mask
from worker.host.secret_bytes import SecretBytes

VALUE = "a secret value"


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "LOOK_SHARE", 0)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run" / "1")
    run.create()
    run.work.mkdir()
    return run


def write(run: RunDir, path: str, content: bytes = b"x") -> Path:
    file = run.work / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


class Job:
    """A job whose rows are kept in memory, and whose files are taken as a relay does."""

    def __init__(
        self,
        run: RunDir,
        *patterns: str,
        limits: OutputLimits | None = None,
        left: int | None = None,
        since_ns: Callable[[], int] = lambda: 0,
        captured: Callable[[Match], bool] = lambda _: False,
        values: Sequence[str] = (),
        lasts: timedelta | None = None,
    ) -> None:
        self.rows: dict[str, StoredArtifact] = {}
        self.blobs = BlobFolder(run.root.parent / "blobs")
        self.told: list[str] = []
        self.limits, self.left = limits or OutputLimits(), left
        keeping = Keeping(
            root=run.root.parent,
            parts=(WORK,),
            patterns=patterns,
            since_ns=since_ns,
            captured=captured,
            secrets=SecretBytes(values),
            job_id="JOB",
            host="box-a",
            lasts=lasts,
        )
        self.files = KeptFiles(keeping, self.blobs, room=self.room, limits=self.limits, mask=Mask(values), look_s=0.0)

    def room(self) -> Room:
        return Room([*self.rows.values()], self.left)

    def take(self, *, final: bool = True, attempt: int = 1, budget: int = 1 << 25) -> list[str]:
        """Stores all that there is now. Returns the paths that were stored."""
        stored: list[str] = []
        while True:
            copies = self.files.take(budget, final=final, warn=self.told.append)
            for copy in copies:
                self.blobs.publish_all(copy.blobs)
                new = self.files.row(copy)
                stored.append(new.path)
                self.rows[new.path] = _row(new, attempt)
            self.files.committed()
            if not self.files.unfinished:
                return stored


def _row(new: NewArtifact, attempt: int) -> StoredArtifact:
    return StoredArtifact(new.path, attempt, new.size, new.modified_ns, new.asked)


def test_without_patterns_what_the_program_wrote_is_kept_at_the_end_smallest_first(run: RunDir) -> None:
    write(run, "train.py", b"old")
    old = max(status.st_ctime_ns for status in [(run.work / "train.py").stat()])
    os.utime(write(run, "copied.csv", b"123"), ns=(1, 1))  # created now, with an older time of its own
    write(run, "results/plot.png", b"12345")
    write(run, "results/large.bin", b"x" * 100)
    job = Job(run, limits=OutputLimits(kept_bytes=50), since_ns=lambda: old)
    assert job.take(final=False) == []
    assert job.take() == ["./copied.csv", "./results/plot.png"]
    assert job.files.message() == ("not kept: results/ (1 file, 100 B), still on box-a: torchyard keep JOB results/")
    sha256 = hashlib.sha256(b"12345").hexdigest()
    assert job.blobs.path(sha256).read_bytes() == b"12345"


def test_the_limit_is_of_the_job_and_what_is_replaced_or_was_asked_for_does_not_count(run: RunDir) -> None:
    write(run, "a", b"x" * 30)
    job = Job(run, limits=OutputLimits(kept_bytes=50))
    job.rows["./asked"] = StoredArtifact("./asked", 1, 1000, 1, asked=True)
    job.rows["artifact"] = StoredArtifact("artifact", 1, 1000, 1)
    assert job.take() == ["./a"]
    write(run, "a", b"y" * 31)
    write(run, "b", b"z" * 20)
    again = Job(run, limits=OutputLimits(kept_bytes=50))
    again.rows = job.rows
    assert again.take(attempt=2) == ["./b"]
    assert again.files.message() == "not kept: a (31 B), still on box-a: torchyard keep JOB a"


def test_what_is_stored_as_it_is_is_not_copied_again(run: RunDir) -> None:
    write(run, "a", b"x")
    job = Job(run)
    job.take()
    again = Job(run)
    again.rows = job.rows
    assert again.take(attempt=2) == []
    assert again.files.message() is None
    assert [row.attempt for row in again.rows.values()] == [1]


def test_caches_links_and_pipes_are_left_out_in_silence(run: RunDir) -> None:
    for folder in ("__pycache__", ".cache/pip", ".git", "sub/__pycache__", ".venv/lib"):
        write(run, f"{folder}/file")
    (run.work / "latest").symlink_to("/etc/passwd")
    (run.work / "away").symlink_to("/etc")
    os.mkfifo(run.work / "pipe")
    write(run, "wandb/.hidden/file")
    job = Job(run)
    assert job.take() == ["./wandb/.hidden/file"]
    assert job.files.message() is None


def test_names_that_are_no_utf_8_and_hard_links_are_said(run: RunDir) -> None:
    write(run, "a/kept")
    Path(os.fsdecode(os.fsencode(run.work / "a") + b"/\xff")).write_bytes(b"12")
    os.link(write(run, "b/one", b"123"), run.work / "b" / "two")
    write(run, "/".join(["deep"] * 17), b"1")
    job = Job(run)
    assert job.take() == ["./a/kept"]
    text = job.files.message()
    assert text is not None
    assert "b/ (2 files, 6 B, has other names)" in text
    assert "a/ (1 file, 2 B, its path is unusual" in text
    assert "deep/ (1 file, 1 B, its path is unusual" in text
    assert text.endswith("torchyard keep JOB b/ a/ deep/")


def test_a_captured_checkpoint_is_not_kept_twice(run: RunDir) -> None:
    write(run, "last.pt")
    write(run, "loss.csv")
    job = Job(run, captured=lambda match: match.parts[-1] == "last.pt")
    assert job.take() == ["./loss.csv"]
    assert job.files.message() is None


@pytest.mark.parametrize("written", [VALUE, f'{{"token": "x{VALUE}y"}}', f"  {VALUE}\n"])
def test_a_file_with_the_value_of_a_secret_is_kept_only_by_a_pattern(run: RunDir, written: str) -> None:
    write(run, "config.json", written.encode())
    write(run, "loss.csv", b"1")
    job = Job(run, values=[VALUE])
    assert job.take() == ["./loss.csv"]
    size = len(written)
    assert job.files.message() == (
        f"not kept: config.json ({size} B, it has the value of a secret), still on box-a:"
        " torchyard keep JOB config.json"
    )
    assert [*(job.blobs.root / "incoming").iterdir()] == []
    assert Job(run, "*", values=[VALUE]).take() == ["./loss.csv", "./config.json"]


def test_a_value_is_found_across_the_parts_of_a_copy(run: RunDir) -> None:
    write(run, "large.bin", b"\0" * ((1 << 20) - 5) + VALUE.encode() + b"\0" * (3 << 20))
    job = Job(run, values=[VALUE])
    assert job.take(budget=1 << 20) == []
    assert "it has the value of a secret" in (job.files.message() or "")


def test_a_value_in_a_path_is_never_stored_or_told(run: RunDir) -> None:
    write(run, f"{VALUE}/file")
    for patterns in ((), ("**",)):
        job = Job(run, *patterns, values=[VALUE])
        assert job.take() == []
        assert job.files.message() == "not kept: ***/ (1 file, 1 B, its path contains the value of a secret)"


def test_a_pattern_stores_settled_files_while_the_job_runs_and_the_rest_at_the_end(run: RunDir) -> None:
    write(run, "results/a.png", b"half")
    job = Job(run, "results/*", limits=OutputLimits(kept_bytes=0))
    assert job.take(final=False) == []
    write(run, "results/a.png", b"half and half")
    assert job.take(final=False) == []
    assert job.take(final=False) == ["./results/a.png"]
    assert job.take(final=False) == []
    with (run.work / "results" / "open.csv").open("wb", buffering=0) as writer:
        writer.write(b"row")
        assert [job.take(final=False) for _ in range(3)] == [[], [], []]
        assert job.take() == ["./results/open.csv"]
    assert job.files.message() is None


def test_a_file_that_is_written_again_and_again_is_stored_rarely_and_as_it_is_at_the_end(run: RunDir) -> None:
    job = Job(run, "*.csv")
    write(run, "a.csv", b"1")
    job.take(final=False)
    assert job.take(final=False) == ["./a.csv"]
    write(run, "a.csv", b"22")
    assert job.take(final=False) + job.take(final=False) == []
    assert job.take() == ["./a.csv"]
    assert job.rows["./a.csv"].size == 2


def test_a_pattern_that_matches_a_folder_keeps_all_below_it_and_two_patterns_keep_a_file_once(run: RunDir) -> None:
    for path in ("out/a", "out/deep/.hidden", "out/__pycache__/c", "other/b", "top"):
        write(run, path)
    for patterns in (("out",), ("out/",), ("./out//*", "out/**"), ("o?t", "out/a")):
        job = Job(run, *patterns)
        assert sorted(job.take()) == ["./out/__pycache__/c", "./out/a", "./out/deep/.hidden"]
    assert sorted(Job(run, "**").take()) == sorted(
        ["./out/a", "./out/deep/.hidden", "./out/__pycache__/c", "./other/b", "./top"]
    )
    assert Job(run, "*/a", "none/*").take() == ["./out/a"]


def test_what_the_limits_and_the_quota_have_no_room_for_is_said(run: RunDir) -> None:
    for size, name in enumerate(("a", "b", "c"), start=4):
        write(run, f"out/{name}", b"x" * size)
    job = Job(run, "out", limits=OutputLimits(artifacts=2))
    assert job.take() == ["./out/a", "./out/b"]
    assert "out/ (1 file, 6 B, the job has TORCHYARD_MAX_ARTIFACTS files already)" in (job.files.message() or "")
    job = Job(run, "out", left=7)
    assert job.take(final=False) + job.take(final=False) == ["./out/a"]
    job.left = 3
    assert job.take() == []
    assert "out/ (2 files, 11 B, over the quota of stored bytes)" in (job.files.message() or "")


def test_of_very_many_files_the_smallest_are_kept_and_of_folders_the_largest_are_named(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_MOST_FOUND", 3)
    for number in range(20):
        write(run, f"{number:02}/file", b"x" * (number + 1))
    job = Job(run)
    assert job.take() == ["./00/file", "./01/file", "./02/file"]
    text = job.files.message() or ""
    assert text.startswith(
        "not kept: 19/ (1 file, 20 B, the job has TORCHYARD_MAX_ARTIFACTS files already), 18/ (1 file, 19 B, "
    )
    assert "and 7 more (49 B)" in text
    monkeypatch.setattr(kept, "_MOST_ENTRIES", 10)
    job = Job(run)
    job.take()
    assert "the rest (there are more than 10 files and folders)" in (job.files.message() or "")


def test_a_long_look_goes_on_over_several_calls(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "_TICK", 1)
    monkeypatch.setattr("worker.attempts.keep.left_files._SLICE_S", 0.0)
    for number in range(5):
        write(run, f"{number}")
    job = Job(run)
    assert job.files.take(1 << 20) == []
    assert job.files.unfinished
    assert len(job.take()) == 5


def test_a_file_that_shrinks_while_it_is_read_is_not_kept(run: RunDir) -> None:
    file = write(run, "a", b"x" * (3 << 20))
    job = Job(run)
    assert job.files.take(1 << 20) == []
    os.truncate(file, 1 << 20)
    assert job.take() == []
    assert job.files.message() == ("not kept: a (3.0 MiB, it has changed), still on box-a: torchyard keep JOB a")


def test_a_full_disk_delays_what_a_pattern_names_and_nothing_else(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: BlobWriter, *__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    write(run, "a")
    with monkeypatch.context() as patch:
        patch.setattr(BlobWriter, "copy_from", full)
        job = Job(run)
        assert job.take() == []
        assert "a (1 B, the disk of the service has no room)" in (job.files.message() or "")
        job = Job(run, "a")
        job.take(final=False)
        assert job.take(final=False) == []
        assert job.told == ["files of keep cannot be stored now; retrying: No space left on device"]
        with pytest.raises(OSError, match="No space left"):
            job.take()
    assert job.take() == ["./a"]


def test_the_message_says_until_when_the_host_has_the_files(run: RunDir) -> None:
    write(run, "results/a", b"12")
    job = Job(run, limits=OutputLimits(kept_bytes=0), lasts=timedelta(hours=24))
    relay = Relay(run, job.blobs, state=RelayState(), listed=(), world_size=1, left=[job.files])
    (event,) = [event for batch in drain(relay, final=True) for event in batch.events]
    until = datetime.fromisoformat(event.data["until"])
    assert timedelta(hours=23, minutes=58) < until - datetime.now(until.tzinfo) <= timedelta(hours=24)
    assert event.data["text"] == (
        f"not kept: results/ (1 file, 2 B), still on box-a until {until:%Y-%m-%d %H:%M} UTC:"
        " torchyard keep JOB results/"
    )


def test_a_relay_stores_what_a_job_left_and_says_once_what_it_did_not(run: RunDir) -> None:
    write(run, "a")
    write(run, "b", b"123")
    job = Job(run, limits=OutputLimits(kept_bytes=2))
    relay = Relay(run, job.blobs, state=RelayState(), listed=(), world_size=1, left=[job.files])
    assert drain(relay) == []
    batches = drain(relay, final=True)
    assert [item.path for batch in batches for item in batch.artifacts] == ["./a"]
    assert len(texts(batches)) == 1
    assert drain(relay, final=True) == []
    job = Job(run, limits=OutputLimits(kept_bytes=2))
    state = RelayState.of(batches[-1].offsets)
    assert drain(Relay(run, job.blobs, state=state, listed=(), world_size=1, left=[job.files]), final=True) == []


@pytest.mark.parametrize(
    ("patterns", "paths", "complete"),
    [
        ((), {"a": 1, "__pycache__/b": 99}, True),
        ((), {"a": 1, "b": 20}, False),
        ((), {"a": 1, "link": 0}, False),
        (("*",), {"a": 1}, False),
        ((), {}, True),
    ],
)
def test_it_is_known_whether_all_that_changed_is_kept(
    run: RunDir, patterns: tuple[str, ...], paths: dict[str, int], complete: bool
) -> None:
    for path, size in paths.items():
        if path == "link":
            (run.work / path).symlink_to("a")
        else:
            write(run, path, bytes(size))
    job = Job(run, *patterns, limits=OutputLimits(kept_bytes=10))
    assert not job.files.is_complete, "it has not looked"
    job.take()
    assert job.files.is_complete == complete
