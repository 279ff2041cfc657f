"""What the message of a hang says of the ranks' collectives, which the job may have forged."""

import os
from pathlib import Path
import signal

import pytest

from tests.approved import Approved
from torchyard.contract.attempts.records import Collective, ProcessIdentity, RankCollectives
from torchyard.contract.attempts.rundir import COLLECTIVES_SIGNAL, RunDir
from torchyard.host.recordfiles import write_record
from worker.engines.local.supervisor.collectives import describe, request
from worker.host import process


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    created = RunDir(tmp_path / "run")
    created.create()
    return created


def collective(name: str, number: int) -> Collective:
    return Collective(name=name, number=number, group="default_pg", sizes="[[3]]")


def write(run: RunDir, rank: int, found: RankCollectives) -> None:
    write_record(run.collectives / f"{rank}.json", found)


def test_ranks_at_one_place_are_named_together(run: RunDir, approved: Approved) -> None:
    after, ahead = collective("nccl:all_reduce", 41), collective("nccl:all_reduce", 42)
    for rank in (0, 2, 3):
        write(run, rank, RankCollectives(waits_for=ahead, ended=after))
    write(run, 1, RankCollectives(ended=after))
    assert "\n".join(describe(run, ranks=range(5))) == approved("describe")


def test_a_rank_without_collectives_is_said(run: RunDir, approved: Approved) -> None:
    write(run, 0, RankCollectives())
    assert describe(run, ranks=range(1)) == [approved("describe")]


@pytest.mark.parametrize(
    "content", [b"", b"{}garbage", b"\x80\x04\x95", b'{"waits_for": 3}', b" " * (2 << 20)], ids=len
)
def test_what_is_no_record_is_not_quoted(run: RunDir, content: bytes) -> None:
    (run.collectives / "0.json").write_bytes(content)
    assert describe(run, ranks=range(1)) == []


def test_a_pipe_and_a_link_in_place_of_the_record_are_not_read(run: RunDir) -> None:
    os.mkfifo(run.collectives / "0.json")
    write(run, 2, RankCollectives())
    (run.collectives / "1.json").symlink_to(run.collectives / "2.json")
    assert describe(run, ranks=range(2)) == []


def test_a_long_text_of_many_lines_is_one_short_line(run: RunDir) -> None:
    write(run, 0, RankCollectives(waits_for=collective("a\nb\x00" + 10_000 * "c", 1)))
    (text,) = describe(run, ranks=range(1))
    assert "\n" not in text
    assert "\x00" not in text
    assert len(text) < 300


def test_of_many_places_some_are_named(run: RunDir) -> None:
    for rank in range(20):
        write(run, rank, RankCollectives(waits_for=collective("x", rank)))
    said = describe(run, ranks=range(20))
    assert (len(said), said[-1]) == (9, "and so on")


def test_only_a_rank_that_answers_the_signal_gets_it() -> None:
    sent: list[tuple[int, int]] = []

    def send(target: ProcessIdentity, number: signal.Signals) -> bool:
        sent.append((target.pid, number))
        return True

    me, ended = process.identity(os.getpid()), ProcessIdentity(pid=2**22 + 1, start_time=1, boot_id="")
    assert me is not None
    request({0: me, 1: ended}, send=send)
    assert sent == []
    before = signal.signal(COLLECTIVES_SIGNAL, signal.default_int_handler)
    try:
        request({0: me, 1: ended}, send=send)
    finally:
        signal.signal(COLLECTIVES_SIGNAL, before)
    assert sent == [(os.getpid(), COLLECTIVES_SIGNAL)]
