"""How ranks agree on the step at which they stop, on one host by files and on several by the store of their group."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
import gc
import os
from pathlib import Path
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st
import pytest
import torch
from torch import distributed
from torch.distributed import PrefixStore, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from tests.disks import mounted
from tests.trainer.ranks import on_ranks, results
import torchyard
from torchyard.contract.attempts.records import ProcessIdentity, StopRequest
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.states import EndReason
from torchyard.host.identity import identity_of
from torchyard.host.recordfiles import write_record
from torchyard.run.agreement import StopAgreement
from trainer.world import joined


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.create()
    return run


@contextmanager
def met_at_a_store() -> Generator[TCPStore]:
    """Lets this process be a rank of several hosts, whose group has met at a store. Yields its server."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MASTER_ADDR", "127.0.0.1")
        patch.setenv("MASTER_PORT", str(server.port))
        patch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
        yield server


class Ranks:
    """Two ranks whose steps a collective holds together: nobody ends a step that the other has not begun."""

    def __init__(self, folder: RunDir, *, local_size: int = 2) -> None:
        self.agents = [
            StopAgreement(folder, rank=rank, world_size=2, local_size=local_size, synchronize=lambda: None)
            for rank in (0, 1)
        ]
        self.begun = [1, 1]
        self.last: list[int | None] = [None, None]

    def can_move(self, rank: int) -> bool:
        return self.last[rank] is None and self.begun[1 - rank] >= self.begun[rank]

    def move(self, rank: int) -> None:
        """Ends the rank's step, asks whether to stop, and begins the next step."""
        if self.agents[rank].reached():
            self.last[rank] = self.begun[rank]
        else:
            self.begun[rank] += 1


@given(order=st.lists(st.sampled_from([0, 1]), max_size=60), told=st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_ranks_stop_at_the_same_step_in_whatever_order_they_run(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], told: tuple[int, int]
) -> None:
    folder = RunDir(tmp_path_factory.mktemp("run"))
    folder.create()
    _stop_together(Ranks(folder), order, told)


@given(order=st.lists(st.sampled_from([0, 1]), max_size=60), told=st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_ranks_of_several_hosts_stop_at_the_same_step_and_write_no_file(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], told: tuple[int, int]
) -> None:
    folder = RunDir(tmp_path_factory.mktemp("run"))
    folder.create()
    with met_at_a_store():
        _stop_together(Ranks(folder, local_size=1), order, told)
    assert list(folder.agreement.iterdir()) == []


def _stop_together(ranks: Ranks, order: list[int], told: tuple[int, int]) -> None:
    for rank in [*order, *([0, 1] * 40)]:
        if ranks.begun[rank] > told[rank]:
            ranks.agents[rank].request()
        if ranks.can_move(rank):
            ranks.move(rank)
    assert ranks.last[0] is not None
    assert ranks.last[0] == ranks.last[1]
    assert ranks.last[0] <= max(told) + 4


def step_together(stop_at: int) -> int:
    """The step at which this rank stopped. Rank 1 asks, through the file, and rank 0 finds it."""
    run = torchyard.init()
    with joined(timedelta(minutes=1)):
        for step in range(1, 1_000_000):
            distributed.all_reduce(torch.ones(1))
            if run.rank == 1 and step == stop_at:
                write_record(RunDir.of_job(Path(os.environ[Env.RUN_DIR])).stop, StopRequest(reason=EndReason.PAUSED))
            if run.should_stop():
                return step
    raise AssertionError("nobody stopped")


@pytest.mark.parametrize("local_size", [pytest.param(2, marks=pytest.mark.thorough), 1], ids=["one host", "two hosts"])
def test_real_ranks_stop_at_the_same_step(folder: RunDir, local_size: int) -> None:
    env = {Env.RUN_DIR: str(folder.job), "LOCAL_WORLD_SIZE": str(local_size)}
    first, second = results(on_ranks(2, step_together, 5, env=env))
    assert first == second >= 6


def pause_together() -> int:
    """The step at which this rank left, of an attempt that pauses at step 5. Rank 0 alone logs."""
    run = torchyard.init()
    with joined(timedelta(minutes=1)):
        for step in range(1, 1_000_000):
            distributed.all_reduce(torch.ones(1))
            if run.rank == 0:
                run.log({"loss": 1 / step}, step=step)
            if run.should_stop():
                return step
    raise AssertionError("nobody left")


def test_real_ranks_pause_at_the_same_step_though_one_alone_logs(folder: RunDir) -> None:
    env = {Env.RUN_DIR.value: str(folder.job), Env.PAUSE_AT.value: "steps:5"}
    first, second = results(on_ranks(2, pause_together, env=env))
    assert first == second >= 5


def of_two_hosts(folder: RunDir, rank: int = 0) -> StopAgreement:
    """Returns the part of one of two ranks, each on a host of its own, that knows of a request."""
    agent = StopAgreement(folder, rank=rank, world_size=2, local_size=1, synchronize=lambda: None)
    agent.request()
    return agent


def test_the_pid_of_another_host_says_nothing(folder: RunDir) -> None:
    write_record(folder.ranks / "1.json", ProcessIdentity(pid=2**22 + 1, start_time=1, boot_id="another"))
    with met_at_a_store():
        agent = of_two_hosts(folder)
        assert not agent.another_has_failed()
        assert not agent.reached()


@pytest.mark.parametrize(("name", "failed"), [("1", True), ("1.finished", False)])
def test_the_supervisor_of_another_host_tells_that_its_rank_has_ended(folder: RunDir, name: str, failed: bool) -> None:
    ended = folder.of_node(1).ended
    ended.mkdir(parents=True)
    (ended / name).touch()
    with met_at_a_store():
        agent = of_two_hosts(folder)
        assert agent.another_has_failed() is failed
        assert agent.reached()


def test_a_rank_leaves_when_the_store_is_gone(folder: RunDir) -> None:
    with met_at_a_store() as server:
        agent = of_two_hosts(folder)
        assert not agent.reached()
        del server
    gc.collect()
    assert agent.reached()
    assert agent.told


@pytest.mark.parametrize("written", ["", "x", "-1", "1" * 5000, "1e3", "²"])
def test_what_a_stranger_writes_into_the_store_is_no_call(folder: RunDir, written: str) -> None:
    with met_at_a_store() as server:
        PrefixStore("torchyard/stop", server).set("last", written)
        agent = of_two_hosts(folder, rank=1)
        assert not agent.reached()


def test_without_a_store_ranks_of_several_hosts_use_files(folder: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no process group, so no step of theirs waits for another rank."""
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    ranks = Ranks(folder, local_size=1)
    for agent in ranks.agents:
        agent.request()
    for _ in range(3):
        ranks.move(0)
        ranks.move(1)
    assert ranks.last[0] == ranks.last[1] is not None


def test_a_rank_whose_peer_is_gone_does_not_wait_for_it(folder: RunDir) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as peer:
        identity = identity_of(peer.pid)
        assert identity is not None
        write_record(folder.ranks / "1.json", identity)
        agent = StopAgreement(folder, rank=0, world_size=2, local_size=2, synchronize=lambda: None)
        agent.request()
        assert not agent.reached()
        peer.communicate(b"\n")
    agent = StopAgreement(folder, rank=0, world_size=2, local_size=2, synchronize=lambda: None)
    agent.request()
    assert agent.reached()


def test_a_stop_is_agreed_on_when_a_full_disk_has_room_again(tmp_path: Path) -> None:
    folder = RunDir(tmp_path / "small")
    folder.root.mkdir()
    with mounted(folder.root, kibibytes=64):
        folder.create()
        ranks = Ranks(folder)
        for agent in ranks.agents:
            agent.request()
        ballast = folder.root / "ballast"
        with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(bytes(4096))
        for _ in range(5):
            ranks.move(0)
            ranks.move(1)
        assert ranks.last == [None, None]
        ballast.unlink()
        for _ in range(3):
            ranks.move(0)
            ranks.move(1)
        assert ranks.last[0] == ranks.last[1] is not None
