"""What two nodes of the doctor's probe find out about each other: two processes here, as two tasks of Slurm are."""

from collections.abc import Generator
import contextlib
from dataclasses import replace
import os
from pathlib import Path
import platform
import socket
import subprocess
import sys
from typing import Any, Literal

import pytest

from tests.approved import Approved
from tests.worker.attempt import wait_for
from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.wire.version import own_version
from torchyard.host.recordfiles import read_record, write_record
from worker.doctor.findings import Status
from worker.doctor.nodes import Expected, judge
from worker.doctor.probe.facts import (
    Hello,
    Listener,
    Met,
    NodeFacts,
    Outcome,
    ProbeFolder,
    ProbeRequest,
    Reached,
    Versions,
)

TOKEN = "ab" * 32


def request(**changes: Any) -> ProbeRequest:
    plain = ProbeRequest(
        token=TOKEN, nodes=2, interface="lo", isolation="off", folders=["/etc", "/no/such"], wait_s=30.0
    )
    return replace(plain, **changes)


@contextlib.contextmanager
def node(folder: ProbeFolder, rank: int) -> Generator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-P", "-m", "worker.doctor.probe.node", str(folder.root)]
    with subprocess.Popen(argv, env={**os.environ, "SLURM_NODEID": str(rank)}) as process:
        try:
            yield process
        finally:
            process.kill()


def facts_of(folder: ProbeFolder, rank: int) -> NodeFacts:
    found = read_record(folder.facts(rank), NodeFacts)
    assert found is not None
    return found


def test_two_nodes_reach_each_other_and_share_locks_and_clocks(tmp_path: Path) -> None:
    folder = ProbeFolder(tmp_path)
    write_record(folder.request, request())
    with node(folder, 0) as first, node(folder, 1) as second:
        assert [first.wait(), second.wait()] == [0, 0]
    one, other = facts_of(folder, 0), facts_of(folder, 1)
    assert (one.host, one.uid, one.versions.python, one.versions.torchyard, one.address) == (
        socket.gethostname(),
        os.geteuid(),
        platform.python_version(),
        own_version(),
        "127.0.0.1",
    )
    assert [*one.unusable] == ["/no/such"]
    assert sorted([one.was_first, other.was_first]) == [False, True]
    assert other.met.locks == "refused"
    assert one.met.reached == [Reached(rank=1)]
    (reached,) = other.met.reached
    assert (reached.rank, reached.error) == (0, None)
    assert reached.clock_ahead_s is not None and abs(reached.clock_ahead_s) <= reached.uncertainty_s + 0.1


STRANGERS = (
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\xff" * 5000,
    b"{}\n",
    f"{Hello(token='cd' * 32, rank=1, listener=Listener(address='127.0.0.1', port=1)).to_json()}\n".encode(),
)


def test_strangers_are_answered_nothing_and_keep_nobody_away(tmp_path: Path) -> None:
    folder = ProbeFolder(tmp_path)
    write_record(folder.request, request())
    with node(folder, 0) as first, contextlib.ExitStack() as stack:
        wait_for(folder.listener.exists, "the first node listens")
        listener = read_record(folder.listener, Listener)
        assert listener is not None
        address = (listener.address, listener.port)
        strangers = [stack.enter_context(socket.create_connection(address)) for _ in STRANGERS]
        for stranger, said in zip(strangers, STRANGERS, strict=True):
            stranger.sendall(said)
        second = stack.enter_context(node(folder, 1))
        assert [first.wait(), second.wait()] == [0, 0]
        for stranger in strangers:
            stranger.settimeout(10)
            assert _received(stranger) == b""
    assert facts_of(folder, 1).met.locks == "refused"
    assert facts_of(folder, 0).met.reached == [Reached(rank=1)]


def test_a_node_that_is_not_reached_says_so_and_the_first_does_not_wait_for_it(tmp_path: Path) -> None:
    folder = ProbeFolder(tmp_path)
    write_record(folder.request, request(wait_s=3600.0))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with node(folder, 0) as first:
        wait_for(folder.listener.exists, "the first node listens")
        write_record(folder.listener, Listener(address="127.0.0.1", port=port))
        with node(folder, 1) as second:
            assert [first.wait(), second.wait()] == [0, 0]
    (reached,) = facts_of(folder, 1).met.reached
    assert reached.error is not None and "refused" in reached.error
    assert facts_of(folder, 0).met.reached == []


def test_an_interface_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = ProbeFolder(tmp_path)
    write_record(folder.request, request(nodes=1, interface="no-such0"))
    with node(folder, 0) as only:
        assert only.wait() == 0
    facts = facts_of(folder, 0)
    assert facts.address is None
    assert facts.no_address is not None
    assert "TORCHYARD_INTERFACE" in facts.no_address and "no-such0" in facts.no_address


VERSIONS = Versions(python="3.11.2", torchyard="0.1.0", torch="2.14.1")
EXPECTED = Expected(nodes=2, uid=1000, versions=VERSIONS, folders=["/data"])


def met(*reached: Reached, locks: Literal["refused", "granted"] | None = "refused", no_locks: str | None = None) -> Met:
    return Met(reached=[*reached], locks=locks, no_locks=no_locks)


FIRST = Reached(rank=0, clock_ahead_s=0.0)


def healthy(rank: int) -> NodeFacts:
    return NodeFacts(
        rank=rank,
        host=f"n{rank + 1}",
        uid=1000,
        versions=VERSIONS,
        time=100.0,
        address=f"10.0.0.{rank + 1}",
        isolation=IsolationReport(level="landlock"),
        was_first=rank == 0,
        met=met(Reached(rank=1 - rank, clock_ahead_s=0.0 if rank else None), locks="refused" if rank else None),
    )


def judged(second: NodeFacts | None, **changes: Any) -> dict[str, tuple[Status, str]]:
    facts = [healthy(0), *([] if second is None else [second])]
    outcome = replace(Outcome(facts, state="COMPLETED", began=90.0, ended=110.0), **changes)
    return {item.check: (item.status, f"{item.fact} → {item.advice}") for item in judge(outcome, EXPECTED)}


def test_two_healthy_nodes_have_no_finding_with_advice(approved: Approved) -> None:
    found = judged(healthy(1))
    assert [*found] == ["probe", "folders", "user", "versions", "isolation", "locks", "ports", "clocks"]
    assert {status for status, _ in found.values()} == {Status.OK}
    assert found["probe"][1] == approved("probe")


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"unusable": {"/data": "Permission denied"}}, "folders"),
        ({"uid": 1001}, "user"),
        ({"versions": replace(VERSIONS, python="3.12.0")}, "versions"),
        ({"versions": replace(VERSIONS, torch="none")}, "versions"),
        ({"isolation": None, "no_isolation": "no Landlock"}, "isolation"),
        ({"met": met(FIRST, locks="granted")}, "locks"),
        ({"met": met(FIRST, locks=None, no_locks="No locks available")}, "locks"),
        ({"was_first": True}, "locks"),
        ({"met": met(Reached(rank=0, error="timed out"))}, "ports"),
        ({"address": None, "no_address": "its name has no address"}, "ports"),
        ({"met": met()}, "ports"),
    ],
)
def test_what_keeps_attempts_from_running_fails_and_says_what_to_do(
    changes: dict[str, Any], check: str, approved: Approved
) -> None:
    found = judged(replace(healthy(1), **changes))
    status, text = found[check]
    fact, _, advice = text.partition(" → ")
    assert (status, fact) == (Status.FAILED, approved.of_row("fact")) and advice
    assert [name for name, (status, _) in found.items() if status is Status.FAILED] == [check]


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"isolation": IsolationReport(level="basic", lacks=["Landlock"])}, "isolation"),
        ({"met": met(Reached(rank=0, clock_ahead_s=-5.0))}, "clocks"),
        ({"time": 7000.0}, "clocks"),
        ({"time": float("nan")}, "clocks"),
    ],
)
def test_what_attempts_can_do_without_is_a_warning(changes: dict[str, Any], check: str, approved: Approved) -> None:
    found = judged(replace(healthy(1), **changes))
    assert found[check][0] is Status.WARNING and found[check][1] == approved.of_row("found")
    assert Status.FAILED not in {status for status, _ in found.values()}


def test_a_node_that_tells_nothing_fails_with_what_the_job_printed(approved: Approved) -> None:
    found = judged(None, log="\nsrun: error\nslurmstepd: execve(): /opt/venv/bin/python: No such file\n")
    status, text = found["probe"]
    assert status is Status.FAILED
    assert text == approved("text")


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome(state="FAILED"), Status.FAILED),
        (Outcome(waits="Resources"), Status.WARNING),
        (Outcome(refused="Invalid account"), Status.FAILED),
    ],
)
def test_a_probe_that_did_not_run_is_the_only_finding(outcome: Outcome, status: Status, approved: Approved) -> None:
    (found,) = judge(outcome, EXPECTED)
    assert (found.check, found.status) == ("probe", status) and found.fact == approved.of_row("fact")


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(100)
    except ConnectionResetError:
        return b""
