"""What a partition offers, as sinfo and scontrol say it."""

from pathlib import Path

import pytest

from tests.approved import Approved
from torchyard.contract.cluster.devices import PoolNodes, PoolReport
from worker.engines.slurm.commands import Commands, NoAnswer
from worker.engines.slurm.pool import PoolSettings, read_pool

PARTITION = "PartitionName=gpu MaxNodes=UNLIMITED MaxTime={time} Nodes=n[1-9] State={state} TotalNodes=9"
NODES = "n1|idle|64|515000|gpu:a100:8(S:0-1)"


def pool(
    folder: Path, nodes: str, *, time: str = "1-12:00:00", state: str = "UP", slots: int | None = None
) -> PoolReport:
    for name, said in (("sinfo", nodes), ("scontrol", PARTITION.format(time=time, state=state))):
        (folder / f"{name}.txt").write_text(said)
        (folder / name).write_text(f"#!/bin/sh\ncat {folder}/{name}.txt\n")
        (folder / name).chmod(0o755)
    return read_pool(Commands({"PATH": f"{folder}:/usr/bin:/bin"}), PoolSettings(partition="gpu", cpu_slots=slots))


def test_a_partition_with_gpus_offers_those_of_its_nodes(tmp_path: Path) -> None:
    found = pool(tmp_path, f"{NODES}\nn2|mixed|96|1031000|gpu:a100:8\nn3|allocated|64|515000|gpu:h100:4,shard:8")
    assert (found.kind, found.max_time_s, found.state, found.obstacle) == ("cuda", 129_600, "up", None)
    assert found.nodes == PoolNodes(count=3, devices=8, gpus=["a100", "h100"], cpus=64, memory_gb=515000 / 1024)


@pytest.mark.parametrize(
    "state",
    ["down", "down*", "idle*", "drained", "draining", "fail", "maint", "unknown", "reboot", "planned*", "inval"],
)
def test_nodes_that_are_away_do_not_count(tmp_path: Path, state: str, approved: Approved) -> None:
    found = pool(tmp_path, f"{NODES}\nn2|{state}|64|515000|gpu:a100:8")
    assert found.nodes.count == 1
    nobody = pool(tmp_path, f"n2|{state}|64|515000|gpu:a100:8")
    assert nobody.obstacle == approved("obstacle")


def test_a_partition_without_gpus_offers_its_cpus_or_the_slots_of_the_operator(tmp_path: Path) -> None:
    nodes = "n1|idle|8|16000|(null)\nn1|idle|8|16000|(null)\nn2|idle|4|16000|(null)"
    assert pool(tmp_path, nodes).nodes == PoolNodes(count=2, devices=8, cpus=4, memory_gb=15.625)
    assert (pool(tmp_path, nodes, slots=2).nodes.devices, pool(tmp_path, NODES, slots=2).kind) == (2, "cpu")


@pytest.mark.parametrize(
    ("time", "seconds"), [("UNLIMITED", None), ("00:02:00", 120), ("7-00:00:00", 604_800), ("NONE", None), ("x", None)]
)
def test_the_longest_time_is_in_seconds(tmp_path: Path, time: str, seconds: int | None) -> None:
    assert pool(tmp_path, NODES, time=time).max_time_s == seconds


def test_a_partition_that_is_down_says_so(tmp_path: Path, approved: Approved) -> None:
    assert pool(tmp_path, NODES, state="INACTIVE").obstacle == approved("obstacle")


def test_lines_of_another_form_are_skipped(tmp_path: Path) -> None:
    strange = [
        "",
        "|",
        "n1",
        "n2|idle",
        "n3|idle|many|1|x",
        "n4|idle|1|1|" + "g" * 100_000,
        "\x00|\x00|1|1|",
        "a|b|" * 999,
    ]
    found = pool(tmp_path, "\n".join([*strange, NODES, *strange]))
    assert found.nodes.count == 1


def test_a_partition_that_is_not_there_is_no_pool(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer):
        pool(tmp_path, NODES, state="")
