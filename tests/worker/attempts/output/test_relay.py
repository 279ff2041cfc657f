"""The relay reads all lines that a job wrote, whatever their content."""

import os
from pathlib import Path
import random
import shutil

import pytest

from store.blobs.folder import BlobFolder
from tests.approved import Approved
from tests.worker.attempts.output.relays import (
    announce,
    drain,
    drain_all,
    little_memory,
    little_read,
    relay_of,
    rows,
    store,
    texts,
    write_checkpoint,
)
from torchyard.contract.attempts.rundir import RunDir
from worker.attempts.output import lines
from worker.attempts.output.relay import Relay


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
    ("after", "expected"),
    [(b"\r\n", "x"), (b"\rshort\n", "short"), (b"\r  ", "x"), (b"\rshort", "short"), (b"\n", "x")],
)
def test_a_part_that_is_longer_than_a_chunk_is_cut_or_overwritten(run: RunDir, after: bytes, expected: str) -> None:
    long = b"x" * (lines.CHUNK + 10)
    run.log("rank-0", "stdout").write_bytes(long + after)
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


def test_a_batch_that_was_not_stored_is_read_again(run: RunDir) -> None:
    run.log("rank-1", "stderr").write_text("once\n")
    relay = relay_of(run)
    assert relay.read() == relay.read()
    restarted = relay_of(run, offsets=drain(relay)[0].offsets)
    assert restarted.read() is None


@pytest.mark.parametrize(("final", "megabytes"), [pytest.param(False, 100, marks=pytest.mark.thorough), (True, 20)])
def test_a_line_that_is_larger_than_memory_is_cut_and_marked(run: RunDir, final: bool, megabytes: int) -> None:
    log = run.log("rank-0", "stdout")
    with log.open("wb") as file:
        file.write(b"first\n")
        for _ in range(megabytes):
            file.write(b"x" * 1_000_000)
        file.write(b"\nnext\n")
    with little_memory(16):
        first, long, following = rows(drain_all(relay_of(run), final=final))
    assert (first, following) == ("first", "next")
    assert long == "x" * 16_384 + f" … [{megabytes * 1_000_000 - 16_384} bytes cut]"


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
        assert rows(drain_all(reader, final=False)) == []
    with log.open("ab") as file:
        file.write(b"\nnext\n")
    for reader in (relay, restarted):
        assert rows(drain(reader)) == ["ä" * 8192 + f" … [{700_000 - 16_384} bytes cut]", "next"]


def test_a_long_line_without_a_newline_ends_with_the_attempt(run: RunDir) -> None:
    run.log("rank-0", "stdout").write_bytes(b"a" + b"\xc3\xa4" * 200_000)
    relay = relay_of(run)
    assert drain(relay) == []
    (line,) = rows(drain(relay, final=True))
    assert line == "a" + "ä" * 8191 + f" … [{400_001 - 16_384} bytes cut]"  # half a character is left out
    assert drain(relay, final=True) == []


def test_the_launcher_of_every_node_is_read_and_none_has_a_rank(run: RunDir) -> None:
    for name in ("launcher", "launcher-1", "launcher-2", "rank-1"):
        run.log(name, "stderr").write_text(f"of {name}\n")
    relay = Relay(run, BlobFolder(run.root.parent / "blobs"), listed=(), world_size=2, nodes=2)
    (batch,) = drain(relay, final=True)
    found = {(chunk.rank, line) for chunk in batch.lines for line in chunk.lines}
    assert found == {(None, "of launcher"), (None, "of launcher-1"), (1, "of rank-1")}


@pytest.mark.parametrize("count", [30_000, pytest.param(1_000_000, marks=pytest.mark.thorough)])
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


@pytest.mark.parametrize("final", [False, True])
def test_a_sparse_log_of_forty_gigabytes_is_skipped(run: RunDir, final: bool) -> None:
    log = run.log("rank-0", "stdout")
    with log.open("wb") as file:
        file.truncate(40 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nthe last line\n")
    with little_read(64):
        batches = drain_all(relay_of(run), final=final)
    assert rows(batches)[-1] == "the last line"
    assert any("left out" in text for text in texts(batches)) is final


def test_a_log_with_a_second_hard_link_is_not_read(run: RunDir, approved: Approved) -> None:
    secret = run.root.parent / "secret"
    secret.write_text("a secret\n")
    run.log("rank-0", "stdout").hardlink_to(secret)
    batches = drain(relay_of(run))
    assert rows(batches) == []
    assert texts(batches) == [approved("texts")]
