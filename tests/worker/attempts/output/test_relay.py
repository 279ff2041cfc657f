"""The relay reads all that a job wrote, whatever its content."""

from collections.abc import Generator
from contextlib import contextmanager
import hashlib
from itertools import pairwise
import math
import os
from pathlib import Path
import random
import shutil
import time

import pytest

from store.blobs import Blobs
from store.facts.output import Batch
from tests.approved import Approved
from tests.worker import eventfiles
from torchyard.contract.events import Remeasured
from torchyard.contract.records import Manifest, ManifestFile
from torchyard.contract.rundir import RunDir
from torchyard.host.recordfiles import write_record
from worker.attempts.output import lines
from worker.attempts.output.relay import Relay, RelayState
from worker.tensorboard import brought


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.create()
    return run


def relay_of(run: RunDir, *, offsets: dict[str, int] | None = None, listed: tuple[str, ...] = ()) -> Relay:
    return Relay(run, Blobs(run.root.parent / "blobs"), state=RelayState.of(offsets or {}), listed=listed, world_size=2)


def drain(relay: Relay, *, final: bool = False) -> list[Batch]:
    batches: list[Batch] = []
    while (batch := relay.read(final=final)) is not None or relay.copying:
        if batch is not None:
            store(relay, batch)
            batches.append(batch)
    return batches


def store(relay: Relay, batch: Batch) -> None:
    with relay.storing(batch):
        pass


def write_checkpoint(run: RunDir, name: str, *, content: bytes = b"state", digest: str | None = None) -> None:
    folder = run.checkpoints / name
    folder.mkdir()
    (folder / "state.pt").write_bytes(content)
    sha256 = digest or hashlib.sha256(content).hexdigest()
    file = ManifestFile(path="state.pt", size=len(content), sha256=sha256)
    write_record(folder / "manifest.json", Manifest(step=7, epoch=1, metrics={"val/loss": 0.5}, files=[file]))


def announce(run: RunDir, name: str) -> None:
    with run.events.open("a") as file:
        file.write(f'{{"type":"checkpoint","name":"{name}","time":1}}\n')


def rows(batches: list[Batch]) -> list[str]:
    return [line for batch in batches for chunk in batch.lines for line in chunk.lines]


def texts(batches: list[Batch]) -> list[str]:
    return [event.data["text"] for batch in batches for event in batch.events]


def test_a_file_that_has_not_grown_is_not_opened(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    run.log("rank-0", "stdout").write_text("one\ntw")
    run.events.touch()
    relay = relay_of(run)
    assert [lines.lines for batch in drain(relay) for lines in batch.lines] == [["one"]]

    def refuse(_: Path, *parts: str) -> None:
        assert parts[-1] not in {"rank-0.stdout", "events.jsonl"}

    monkeypatch.setattr(lines, "open_inside", refuse)
    assert relay.read() is None
    assert relay.unfinished[0, "stdout"] == "tw"


def test_only_complete_lines_are_read_until_the_end(run: RunDir) -> None:
    log = run.log("rank-0", "stdout")
    log.write_bytes(b"one\ntwo\nthr")
    relay = relay_of(run)
    (batch,) = drain(relay)
    assert [(chunk.rank, chunk.stream, chunk.lines) for chunk in batch.lines] == [(0, "stdout", ["one", "two"])]
    with log.open("ab") as file:
        file.write(b"ee\nfour")
    (batch,) = drain(relay)
    assert batch.lines[0].lines == ["three"]
    (batch,) = drain(relay, final=True)
    assert batch.lines[0].lines == ["four"]
    assert drain(relay, final=True) == []


def test_of_a_progress_bar_only_the_last_text_becomes_a_row(run: RunDir) -> None:
    log = run.log("rank-0", "stderr")
    relay = relay_of(run)
    log.write_bytes(b"start\r\n\r  1% loss=2.5")
    assert rows(drain(relay)) == ["start"]
    assert relay.unfinished[0, "stderr"] == "  1% loss=2.5"
    with log.open("ab") as file:
        file.write(b"\r 99% loss=0.2\r100% loss=0.1   ")
    assert drain(relay) == []
    assert relay.unfinished[0, "stderr"] == "100% loss=0.1   "
    relay = relay_of(run, offsets={"rank-0.stderr": 7})  # as after a restart of the worker
    with log.open("ab") as file:
        file.write(b"\n\r  5%\r      \r\x1b[Kdone\r\x1b[2K\r\nname: ")
    assert rows(drain(relay)) == ["100% loss=0.1   ", "\x1b[Kdone"]
    assert relay.unfinished[0, "stderr"] == "name: "
    assert rows(drain(relay, final=True)) == ["name: "]
    assert relay.unfinished[0, "stderr"] == ""
    assert drain(relay, final=True) == []


def test_nested_progress_bars_become_a_row_when_they_have_ended(run: RunDir) -> None:
    log, relay = run.log("rank-0", "stderr"), relay_of(run)
    log.write_bytes(b"start\n\router 0%")
    found = rows(drain(relay))
    for step in range(100):  # as tqdm draws the second bar, below the first one
        with log.open("ab") as file:
            file.write(b"\n\rinner %d%%\x1b[A" % step)
        found += rows(drain(relay))
        assert relay.unfinished[0, "stderr"].startswith("inner ")
    with log.open("ab") as file:
        file.write(b"\router 100%\n\nend\n")
    found += rows(drain(relay, final=True))
    assert found == ["start", "outer 0%", "outer 100%", "", "end"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r   \r\n", b""])
def test_a_long_line_with_returns_ends_with_its_last_text_across_restarts(
    run: RunDir, end: bytes, approved: Approved
) -> None:
    log = run.log("rank-0", "stdout")
    offsets: dict[str, int] = {}
    for part in range(4):
        with log.open("ab") as file:
            file.write(
                b"".join(b"\r%06d of a long bar" % number for number in range(10_000 * part, 10_000 * (part + 1)))
            )
        relay = relay_of(run, offsets=offsets)
        for batch in drain(relay):
            offsets = batch.offsets
            assert batch.lines == []
    assert log.stat().st_size - offsets["rank-0.stdout"] <= lines.CHUNK
    with log.open("ab") as file:
        file.write(end)
    assert rows(drain(relay_of(run, offsets=offsets), final=True)) == [approved("rows")]


@pytest.mark.parametrize(
    ("behind", "expected"),
    [(b"\r\n", "x"), (b"\rshort\n", "short"), (b"\r  ", "x"), (b"\rshort", "short"), (b"\n", "x")],
)
def test_a_part_that_is_longer_than_a_chunk_is_cut_or_overwritten(run: RunDir, behind: bytes, expected: str) -> None:
    long = b"x" * (lines.CHUNK + 10)
    run.log("rank-0", "stdout").write_bytes(long + behind)
    for final in (False, True):
        relay = relay_of(run)
        (row,) = rows([*([] if final else drain(relay)), *drain(relay, final=True)])
        cut = f"{'x' * 16_384} … [{len(long) - 16_384} bytes cut]"
        assert row == (cut if expected == "x" else expected)


@pytest.mark.parametrize("up", [b"", b"\x1b[A"], ids=["", "up"])
@pytest.mark.parametrize("seed", range(5))
def test_wherever_a_restart_cuts_the_output_each_line_is_stored_once(run: RunDir, seed: int, up: bytes) -> None:
    source = random.Random(seed)
    words = [b"a", b"bb ", b"\r", b"\r", b"\n", b" ", b"\x1b[K", up]
    content = b"".join(source.choices(words, k=400))
    log, offsets, found = run.log("rank-0", "stdout"), dict[str, int](), list[str]()
    place = 0
    while place < len(content):
        place += source.randint(1, 40)
        log.write_bytes(content[:place])
        for batch in drain(relay_of(run, offsets=offsets)):
            offsets = batch.offsets
            found += rows([batch])
    found += rows(drain(relay_of(run, offsets=offsets), final=True))
    whole = run.log("rank-1", "stdout")
    whole.write_bytes(content)
    log.unlink()
    assert found == rows(drain(relay_of(run), final=True))
    assert up or len(found) == len(content.removesuffix(b"\n").split(b"\n"))


def test_event_files_are_read_once_across_restarts_and_marked(run: RunDir) -> None:
    path = eventfiles.write(run.artifacts / "tb" / eventfiles.NAME, eventfiles.scalars("loss", {1: 0.5}))
    relay = relay_of(run)
    (batch,) = drain(relay)
    assert [(point.key, point.step, point.value) for point in batch.curves] == [("loss", 1, 0.5)]
    assert batch.points == []
    with path.open("ab") as file:
        file.write(eventfiles.scalars("loss", {2: 0.25}))
    relay = relay_of(run, offsets=batch.offsets)
    assert [point.step for batch in drain(relay) for point in batch.curves] == [2]
    assert drain(relay, final=True) == []


def test_points_are_not_older_than_their_attempt(run: RunDir) -> None:
    now = time.time_ns() // 1000 + 60_000_000
    lines = (f'{{"type":"metric","step":1,"time":{written},"values":{{"a":1}}}}\n' for written in (30, now))
    run.events.write_text("".join(lines))
    brought.remember(run, read={})
    eventfiles.write(run.artifacts / "tb" / eventfiles.NAME, eventfiles.scalars("loss", {1: 0.5}))
    started = run.brought.stat().st_mtime_ns // 1000
    (batch,) = drain(relay_of(run))
    assert [point.time for point in batch.points] == [started, now]
    assert [point.time for point in batch.curves] == [started]


def test_a_batch_that_was_not_stored_is_read_again(run: RunDir) -> None:
    run.log("rank-1", "stderr").write_text("once\n")
    relay = relay_of(run)
    assert relay.read() == relay.read()
    restarted = relay_of(run, offsets=drain(relay)[0].offsets)
    assert restarted.read() is None


def test_a_batch_says_whether_the_event_log_has_something_new(run: RunDir) -> None:
    relay = relay_of(run)
    found: list[bool] = []
    for path, text in ((run.log("rank-0", "stdout"), "a line\n"), (run.events, "{}\n"), (run.events, "{}\n")):
        with path.open("a") as file:
            file.write(text)
        batch = relay.read()
        assert batch is not None
        with relay.storing(batch):
            found.append(batch.reports)
    assert found == [False, True, True]


def test_metrics_progress_and_messages_are_parsed(run: RunDir) -> None:
    run.events.write_text(
        '{"type":"metric","step":3,"time":30,"values":{"train/loss":"NaN","train/lr":0.5,"train/x":"-Infinity"}}\n'
        '{"type":"progress","step":10,"total_steps":40,"epoch":1,"epochs":4,"time":1000000}\n'
        '{"type":"progress","step":20,"total_steps":40,"epoch":2,"epochs":4,"time":3000000}\n'
        '{"type":"message","level":"info","text":"hello","time":5}\n'
    )
    (batch,) = drain(relay_of(run))
    values = {point.key: point.value for point in batch.points}
    assert math.isnan(values.pop("train/loss"))
    assert values == {"train/lr": 0.5, "train/x": -math.inf}
    assert batch.progress == {
        "step": 20,
        "total_steps": 40,
        "epoch": 2,
        "epochs": 4,
        "fraction": 0.5,
        "eta_seconds": 4.0,
    }
    assert [event.data["text"] for event in batch.events if event.type == "message"] == ["hello"]
    announced = [event for event in batch.events if event.type == "progress"]
    assert [(event.data["step"], event.data["fraction"], event.time) for event in announced] == [
        (10, 0.25, 1_000_000),
        (20, 0.5, 3_000_000),
    ]
    assert batch.lag_us > 0


def progress_lines(*steps: int, pace: int, epoch: int = 1) -> str:
    """Returns a progress line for each step, `pace` microseconds apart."""
    return "".join(
        f'{{"type":"progress","step":{step},"total_steps":100000,"epoch":{epoch},"time":{step * pace}}}\n'
        for step in steps
    )


def announced_steps(batches: list[Batch]) -> list[int]:
    """Returns the steps whose progress became an event."""
    return [event.data["step"] for batch in batches for event in batch.events if event.type == "progress"]


def test_progress_becomes_an_event_at_intervals_and_at_the_end(run: RunDir) -> None:
    run.events.write_text(progress_lines(*range(1, 26), pace=100_000))
    relay = relay_of(run)
    batches = drain(relay)
    assert announced_steps(batches) == [1, 6, 11, 16, 21]
    assert batches[-1].progress is not None
    assert batches[-1].progress["step"] == 25
    last = relay.read(final=True)
    assert last is not None
    store(relay, last)
    assert announced_steps([last]) == [25]
    assert relay.read(final=True) is None


def test_progress_events_become_rarer_the_longer_an_attempt_runs(run: RunDir) -> None:
    run.events.write_text(progress_lines(*range(1, 40_001), pace=1_000_000))
    steps = announced_steps(drain(relay_of(run)))
    gaps = [after - before for before, after in pairwise(steps)]
    assert gaps == sorted(gaps)
    assert (gaps[0], gaps[-1]) == (1, 60)
    assert len(steps) < 4000


def test_a_new_epoch_becomes_an_event_at_once(run: RunDir) -> None:
    run.events.write_text(progress_lines(1, 2, pace=1) + progress_lines(3, 4, pace=1, epoch=2))
    assert announced_steps(drain(relay_of(run))) == [1, 3]


def test_the_progress_of_a_batch_that_was_not_stored_is_announced_again(run: RunDir) -> None:
    run.events.write_text(progress_lines(1, pace=1))
    relay = relay_of(run)
    relay.read()
    assert announced_steps(drain(relay)) == [1]


def test_a_batch_contains_its_last_card(run: RunDir) -> None:
    run.events.write_text(
        '{"type":"card","time":1,"values":{"parameters":62}}\n'
        '{"type":"card","time":2,"values":{"parameters":63,"speed":NaN,"versions":{"torch":"2.14.1","cuda":null}}}\n'
    )
    (batch,) = drain(relay_of(run))
    assert batch.card == {"parameters": 63, "speed": "NaN", "versions": {"torch": "2.14.1", "cuda": None}}
    assert batch.events == []


def test_a_batch_contains_the_last_packages(run: RunDir) -> None:
    run.events.write_text(
        "".join(
            f'{{"type":"packages","time":1,"values":{{"torch":"{version}"}}}}\n' for version in ("2.13", "2.14+cpu")
        )
    )
    (batch,) = drain(relay_of(run))
    assert (batch.packages, batch.events) == ({"torch": "2.14+cpu"}, [])


def test_a_batch_contains_the_last_line_about_what_was_measured_again(run: RunDir) -> None:
    lines = [Remeasured(time=1, name="one", metrics={"val/loss": value}) for value in (2.0, 1.0)]
    run.events.write_text("".join(f"{line.to_json()}\n" for line in lines))
    (batch,) = drain(relay_of(run))
    assert batch.remeasured == lines[-1]


@pytest.mark.parametrize(
    "values",
    [
        "[]",
        '{"a": "' + "x" * 70_000 + '"}',
        '{"a": ' + "[" * 40 + "]" * 40 + "}",
        '{"a": ' + "[" * 10_000 + "]" * 10_000 + "}",
        '{"a": ' + "9" * 5000 + "}",
        '{"a": "\\u0000"}',
        '{"a": "\\ud800"}',
        '{"": 1}',
    ],
)
def test_an_invalid_card_is_skipped_with_a_message(run: RunDir, values: str) -> None:
    run.events.write_text(
        '{"type":"card","time":1,"values":{"parameters":62}}\n'
        f'{{"type":"card","time":2,"values":{values}}}\n'
        '{"type":"metric","step":1,"time":1,"values":{"a":1}}\n'
    )
    (batch,) = drain(relay_of(run))
    assert batch.card == {"parameters": 62}
    assert [point.key for point in batch.points] == ["a"]
    assert [text.startswith("a line of events.jsonl is not an event") for text in texts([batch])] == [True]


def test_invalid_event_lines_are_reported_and_skipped(run: RunDir) -> None:
    lines = [b"\xff\xfe\x00binary", b'{"type":"metric","step":-1,"time":1,"values":{}}', b"[]", b"", b'{"type":"ufo"}']
    good = b'{"type":"metric","step":1,"time":1,"values":{"a":1}}'
    run.events.write_bytes(b"\n".join([*lines, good]) + b"\n")
    (batch,) = drain(relay_of(run))
    assert [point.key for point in batch.points] == ["a"]
    assert len(batch.events) == 4
    assert all("is not an event that this worker knows" in text for text in texts([batch]))


def log_lines(batches: list[Batch]) -> list[str]:
    return [line for batch in batches for chunk in batch.lines for line in chunk.lines]


@contextmanager
def little_memory(mebibytes: int) -> Generator[None]:
    """Fails if this process needs more additional memory than that at any moment of the block."""

    def status(name: str) -> int:
        found = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
        return int(found.split()[1])

    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the present size
    before = status("VmRSS")
    yield
    assert status("VmHWM") - before < mebibytes * 1024


@pytest.mark.parametrize("final", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_a_line_of_a_hundred_megabytes_is_cut_and_marked(run: RunDir, final: bool) -> None:
    log = run.log("rank-0", "stdout")
    with log.open("wb") as file:
        file.write(b"first\n")
        for _ in range(100):
            file.write(b"x" * 1_000_000)
        file.write(b"\nnext\n")
    with little_memory(16):
        first, long, following = log_lines(drain_all(relay_of(run), final=final))
    assert (first, following) == ("first", "next")
    assert long == "x" * 16_384 + f" … [{100_000_000 - 16_384} bytes cut]"


def drain_all(relay: Relay, *, final: bool) -> list[Batch]:
    """As `drain`, but goes on after a call that finds nothing yet."""
    found: list[Batch] = []
    for _ in range(10):
        found += drain(relay, final=final)
    return found


def test_the_search_for_the_end_of_a_long_line_continues_where_it_stopped(run: RunDir) -> None:
    log = run.log("rank-0", "stdout")
    with log.open("wb") as file:
        file.write("ä".encode() * 200_000)
    relay = relay_of(run)
    assert drain(relay) == []
    with log.open("ab") as file:
        file.write(b"y" * 300_000)
    assert drain(relay) == []
    restarted = relay_of(run)
    for reader in (relay, restarted):
        assert log_lines(drain_all(reader, final=False)) == []
    with log.open("ab") as file:
        file.write(b"\nnext\n")
    for reader in (relay, restarted):
        assert log_lines(drain(reader)) == ["ä" * 8192 + f" … [{700_000 - 16_384} bytes cut]", "next"]


def test_a_long_line_without_a_newline_ends_with_the_attempt(run: RunDir) -> None:
    run.log("rank-0", "stdout").write_bytes(b"a" + b"\xc3\xa4" * 200_000)
    relay = relay_of(run)
    assert drain(relay) == []
    (line,) = log_lines(drain(relay, final=True))
    assert line == "a" + "ä" * 8191 + f" … [{400_001 - 16_384} bytes cut]"  # half a character is left out
    assert drain(relay, final=True) == []


def test_an_event_longer_than_a_chunk_gives_one_warning(run: RunDir, approved: Approved) -> None:
    good = '{"type":"metric","step":1,"time":1,"values":{"a":1}}\n'
    run.events.write_text('{"type":"' + "x" * 5_000_000 + '"}\n' + good)
    batches = drain(relay_of(run))
    (text,) = texts(batches)
    assert text == approved("text")
    assert [point.key for batch in batches for point in batch.points] == ["a"]


def test_the_launcher_of_every_node_is_read_and_none_has_a_rank(run: RunDir) -> None:
    for name in ("launcher", "launcher-1", "launcher-2", "rank-1"):
        run.log(name, "stderr").write_text(f"of {name}\n")
    relay = Relay(run, Blobs(run.root.parent / "blobs"), listed=(), world_size=2, nodes=2)
    (batch,) = drain(relay, final=True)
    found = {(chunk.rank, line) for chunk in batch.lines for line in chunk.lines}
    assert found == {(None, "of launcher"), (None, "of launcher-1"), (1, "of rank-1")}


@pytest.mark.parametrize("count", [50_000, pytest.param(1_000_000, marks=pytest.mark.thorough)])
def test_a_flood_of_log_lines_keeps_its_order_and_does_not_delay_metrics(run: RunDir, count: int) -> None:
    with run.log("rank-0", "stdout").open("wb") as file:
        for start in range(0, count, 10_000):
            file.write(b"".join(b"line %d\n" % number for number in range(start, start + 10_000)))
    write_checkpoint(run, "epoch-0001")
    run.events.write_text('{"type":"metric","step":1,"time":1,"values":{"a":1}}\n')
    announce(run, "epoch-0001")
    relay, expected = relay_of(run), 0
    with little_memory(32):
        first = relay.read()
        assert first is not None
        assert [point.key for point in first.points] == ["a"]
        assert [new.name for new in first.checkpoints] == ["epoch-0001"]
        while (batch := relay.read()) is not None:
            store(relay, batch)
            (chunk,) = batch.lines
            assert chunk.lines == [f"line {number}" for number in range(expected, expected + len(chunk.lines))]
            expected += len(chunk.lines)
    assert expected == count


@pytest.mark.parametrize("count", [30_000, pytest.param(100_000, marks=pytest.mark.thorough)])
def test_a_flood_of_points_is_read_in_order_and_in_little_memory(run: RunDir, count: int) -> None:
    with run.events.open("w") as file:
        for step in range(count):
            file.write(f'{{"type":"metric","step":{step},"time":{step},"values":{{"train/loss":{step / 7}}}}}\n')
    relay, expected = relay_of(run), 0
    with little_memory(32):
        while (batch := relay.read()) is not None:
            store(relay, batch)
            assert [point.step for point in batch.points] == list(range(expected, expected + len(batch.points)))
            expected += len(batch.points)
    assert expected == count


def test_nul_and_binary_floods_are_stored_as_text(run: RunDir) -> None:
    noise = random.Random(1).randbytes(300_000)
    run.log("rank-0", "stdout").write_bytes(bytes(1_000_000) + b"\n" + noise)
    run.log("rank-1", "stderr").write_bytes(b"\n" * 100_000)
    with little_memory(32):
        batches = drain(relay_of(run), final=True)
    lines = {
        (chunk.rank, chunk.stream): [
            line for batch in batches for part in batch.lines if part.rank == chunk.rank for line in part.lines
        ]
        for batch in batches
        for chunk in batch.lines
    }
    assert lines[1, "stderr"] == [""] * 100_000
    nuls, *others = lines[0, "stdout"]
    assert nuls == "\ufffd" * 16_384 + f" … [{1_000_000 - 16_384} bytes cut]"
    assert len(others) == noise.count(b"\n") + (not noise.endswith(b"\n"))
    assert not any("\x00" in line for line in others)


def test_binary_output_becomes_text_that_every_database_stores(run: RunDir) -> None:
    run.log("rank-0", "stderr").write_bytes(b"a\x00b\xff\xed\xa0\x80\n")
    (batch,) = drain(relay_of(run))
    (line,) = batch.lines[0].lines
    assert "\x00" not in line
    assert line.encode().startswith(b"a")


def test_a_link_or_a_pipe_in_place_of_a_log_is_not_read(run: RunDir, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    run.log("rank-0", "stdout").symlink_to(secret)
    os.mkfifo(run.log("rank-1", "stdout"))
    run.log("rank-0", "stderr").write_text("fine\n")
    batches = drain(relay_of(run))
    assert [chunk.lines for batch in batches for chunk in batch.lines] == [["fine"]]
    assert len(texts(batches)) == 2
    run.logs.rename(tmp_path / "elsewhere")
    run.logs.symlink_to(tmp_path / "elsewhere")
    assert all(not batch.lines for batch in drain(relay_of(run)))


def test_an_announced_checkpoint_is_in_the_blob_store_before_it_is_listed(run: RunDir) -> None:
    write_checkpoint(run, "epoch-0001", content=b"weights")
    announce(run, "epoch-0001")
    relay = relay_of(run)
    (batch,) = drain(relay)
    (listed,) = batch.checkpoints
    assert (listed.name, listed.manifest.epoch, listed.manifest.metrics) == ("epoch-0001", 1, {"val/loss": 0.5})
    assert Blobs(run.root.parent / "blobs").path(listed.files[0].sha256).read_bytes() == b"weights"
    assert drain(relay, final=True) == []


def test_a_checkpoint_whose_announcement_was_lost_is_found_at_the_end(run: RunDir) -> None:
    write_checkpoint(run, "epoch-0001")
    write_checkpoint(run, "epoch-0002")
    (run.checkpoints / ".half-written").mkdir()
    relay = relay_of(run, listed=("epoch-0001",))
    assert drain(relay) == []
    (batch,) = drain(relay, final=True)
    assert [new.name for new in batch.checkpoints] == ["epoch-0002"]


def test_an_unannounced_folder_with_an_invalid_name_is_not_listed(run: RunDir) -> None:
    for name in ("x" * 101, "two words", os.fsdecode(b"\xff"), "good"):
        write_checkpoint(run, name)
    batches = drain(relay_of(run), final=True)
    assert [new.name for batch in batches for new in batch.checkpoints] == ["good"]
    assert [text.endswith("is not listed: its name is not a valid checkpoint name") for text in texts(batches)] == [
        True
    ] * 3


def test_a_checkpoint_that_does_not_match_its_manifest_is_not_listed(run: RunDir, tmp_path: Path) -> None:
    write_checkpoint(run, "wrong", digest="0" * 64)
    (run.checkpoints / "bare").mkdir()
    write_checkpoint(run, "linked")
    (run.checkpoints / "linked" / "state.pt").unlink()
    (run.checkpoints / "linked" / "state.pt").symlink_to("/etc/passwd")
    escaping = run.checkpoints / "escaping"
    escaping.mkdir()
    (escaping / "manifest.json").write_text('{"step":1,"files":[{"path":"../../config.json","size":1,"sha256":"0"}]}')
    for name in ("wrong", "bare", "linked", "escaping", "absent"):
        announce(run, name)
    batches = drain(relay_of(run), final=True)
    assert all(not batch.checkpoints for batch in batches)
    warnings = texts(batches)
    assert len(warnings) == 5
    for name in ("wrong", "bare", "linked", "escaping", "absent"):
        assert any(text.startswith(f"checkpoint {name} is not listed: ") for text in warnings)


def test_a_file_that_has_become_shorter_is_read_again(run: RunDir, approved: Approved) -> None:
    log = run.log("rank-0", "stdout")
    log.write_text("a long first line\n")
    relay = relay_of(run)
    drain(relay)
    log.write_text("new\n")
    batches = drain(relay)
    assert [chunk.lines for batch in batches for chunk in batch.lines] == [["new"]]
    assert texts(batches) == [approved("texts")]
    log.write_text("")
    assert len(texts(drain(relay))) == 1


def test_a_missing_run_directory_has_nothing_to_read(run: RunDir) -> None:
    relay = relay_of(run)
    shutil.rmtree(run.root)
    assert drain(relay, final=True) == []


def files_of(run: RunDir) -> list[str]:
    blobs = run.root.parent / "blobs"
    return [path.name for path in blobs.rglob("*") if path.is_file() and path.name != "lock"]


@pytest.mark.parametrize(
    ("size", "listed", "count"),
    [
        (6 << 30, 1, 1),
        (1, 1, 1000),
        (1 << 42, 1 << 42, 1),
    ],
)
def test_a_checkpoint_with_a_wrong_size_is_refused_without_reading_it(
    run: RunDir, size: int, listed: int, count: int, approved: Approved
) -> None:
    folder = run.checkpoints / "one"
    folder.mkdir()
    with (folder / "state.pt").open("wb") as file:
        file.truncate(size)
    entry = ManifestFile(path="state.pt", size=listed, sha256=hashlib.sha256(b"\0").hexdigest())
    write_record(folder / "manifest.json", Manifest(step=1, files=[entry] * count))
    announce(run, "one")
    before = time.process_time()
    (text,) = texts(drain(relay_of(run)))
    assert time.process_time() - before < 0.5
    assert text == approved.of_row("text")
    assert files_of(run) == []


def test_a_checkpoint_whose_digest_is_wrong_leaves_no_blob(run: RunDir, approved: Approved) -> None:
    write_checkpoint(run, "one", content=b"state", digest="0" * 64)
    announce(run, "one")
    (text,) = texts(drain(relay_of(run)))
    assert text == approved("text")
    assert files_of(run) == []


@pytest.mark.parametrize("announced", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_logs_and_garbage_collection_go_on_while_a_large_checkpoint_is_copied(run: RunDir, announced: bool) -> None:
    write_checkpoint(run, "one", content=bytes(80 << 20))
    if announced:
        announce(run, "one")
    relay, blobs = relay_of(run), Blobs(run.root.parent / "blobs")
    assert relay.read(final=True) is None
    assert relay.copying
    with blobs.exclusive_lock() as alone:
        assert alone
    run.log("rank-0", "stdout").write_text("a line\n")
    batches = drain(relay, final=True)
    assert log_lines(batches) == ["a line"]
    (new,) = [new for batch in batches for new in batch.checkpoints]
    assert files_of(run) == [new.files[0].sha256]


def test_a_discarded_copy_leaves_nothing(run: RunDir) -> None:
    write_checkpoint(run, "one", content=bytes(80 << 20))
    announce(run, "one")
    relay = relay_of(run)
    assert relay.read() is None
    relay.close()
    assert files_of(run) == []


def test_a_batch_with_a_checkpoint_that_was_not_stored_is_read_again(run: RunDir) -> None:
    write_checkpoint(run, "one")
    announce(run, "one")
    relay = relay_of(run)
    batch = relay.read()
    assert batch is not None
    with pytest.raises(OSError, match="away"), relay.storing(batch):
        raise OSError("the database is away")
    (again,) = drain(relay)
    assert [new.name for new in again.checkpoints] == ["one"]


@pytest.mark.parametrize("final", [False, True])
def test_a_sparse_log_of_forty_gigabytes_is_skipped(run: RunDir, final: bool) -> None:
    log = run.log("rank-0", "stdout")
    with log.open("wb") as file:
        file.truncate(40 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nthe last line\n")
    before = time.process_time()
    batches = drain_all(relay_of(run), final=final)
    assert time.process_time() - before < 1
    assert log_lines(batches)[-1] == "the last line"
    assert any("left out" in text for text in texts(batches)) is final


def test_a_log_with_a_second_hard_link_is_not_read(run: RunDir, approved: Approved) -> None:
    secret = run.root.parent / "secret"
    secret.write_text("a secret\n")
    run.log("rank-0", "stdout").hardlink_to(secret)
    batches = drain(relay_of(run))
    assert log_lines(batches) == []
    assert texts(batches) == [approved("texts")]


def test_the_files_of_a_checkpoint_keep_their_names(run: RunDir) -> None:
    folder = run.checkpoints / "epoch-0001"
    deep = "/".join("abcdefghijklmno")
    files = {
        "state.index.json": b"{}",
        "epoch=1 é.ckpt": b"x" * 700_000,
        ".metadata": b"",
        f"{deep}/__0_0.distcp": b"1",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    listed = [
        ManifestFile(path=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())
        for name, content in files.items()
    ]
    write_record(folder / "manifest.json", Manifest(step=7, epoch=1, files=listed))
    announce(run, folder.name)
    (saved,) = [item for batch in drain(relay_of(run)) for item in batch.checkpoints]
    assert saved.entries == [file.to_dict() for file in listed]
