"""Of what PyTorch's flight recorder knows, a rank writes all, and in short where it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from torchyard.contract.attempts.records import Collective, RankCollectives
from torchyard.contract.attempts.rundir import RunDir
from torchyard.host.recordfiles import read_record
from torchyard.run.collectives import record_collectives


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.create()
    return run


def entry(number: int, state: str, *, name: str = "nccl:all_reduce", begun: int = 0, **more: Any) -> dict[str, Any]:
    """Returns an entry as torch 2.14 writes it."""
    return {
        "profiling_name": name,
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "process_group": ["0", "default_pg"],
        "input_sizes": [[5, 2]],
        "state": state,
        "retired": False,
        "time_created_ns": begun or number,
        **more,
    }


def place(folder: RunDir, monkeypatch: pytest.MonkeyPatch, **entries: list[dict[str, Any]]) -> RankCollectives | None:
    """Returns what rank 0 records if torch's recorders, `nccl` and `fr`, know these entries."""
    for name in ("nccl", "fr"):
        known = json.dumps({"version": "2.10", "entries": entries.get(name, [])}).encode()
        monkeypatch.setattr(f"torch._C._distributed_c10d._dump_{name}_trace_json", lambda known=known: known)
    record_collectives(folder, 0)
    return read_record(folder.collectives / "0.json", RankCollectives)


def named(name: str, number: int, group: str = "default_pg") -> Collective:
    return Collective(name=name, number=number, group=group, sizes="[[5, 2]]")


def test_the_oldest_open_collective_is_the_one_waited_for(folder: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [entry(4, "scheduled"), entry(3, "started"), entry(2, "completed"), entry(1, "scheduled", retired=True)]
    found = place(folder, monkeypatch, nccl=known)
    assert found == RankCollectives(waits_for=named("nccl:all_reduce", 3), ended=named("nccl:all_reduce", 2))
    assert json.loads((folder.collectives / "0.dump.json").read_text())["nccl"]["entries"] == known


def test_the_recorders_of_two_backends_are_one_order(folder: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    gloo = entry(1, "scheduled", name="gloo:broadcast", begun=5, process_group=["7", "undefined"])
    found = place(folder, monkeypatch, nccl=[entry(9, "started", begun=6)], fr=[gloo])
    assert found == RankCollectives(waits_for=named("gloo:broadcast", 1, group="7"))


def test_a_transfer_between_two_ranks_has_its_own_number(folder: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    send = entry(0, "started", name="nccl:send 0->1", is_p2p=True, p2p_seq_id=12)
    assert place(folder, monkeypatch, nccl=[send]) == RankCollectives(waits_for=named("nccl:send 0->1", 12))


def test_without_entries_nothing_is_written(folder: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place(folder, monkeypatch) is None
    assert list(folder.collectives.iterdir()) == []
