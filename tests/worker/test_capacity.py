"""A worker offers the CPUs and memory of its host, within the limits of its control groups."""

import os
from pathlib import Path

import pytest

from worker.host.capacity import Capacity

GIB = 1 << 30


def host(root: Path, groups: str, **files: str) -> Path:
    """Makes the files of a host with 64 GiB. In the names of `files`, `__` stands for `/`."""
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/cgroup").write_text(groups)
    (root / "proc/meminfo").write_text(f"MemTotal:       {64 << 20} kB\nMemFree:  1 kB\n")
    for name, content in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_max", ".max")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return root


def test_a_host_without_limits_offers_all(tmp_path: Path) -> None:
    root = host(tmp_path, "0::/\n", cpu_max="max 100000", memory_max="max")
    assert Capacity().memory_gb_of(1, root=root) == 64
    assert Capacity().cpus_of(1, root=root) == len(os.sched_getaffinity(0))


def test_workers_of_one_host_share_what_is_not_set(tmp_path: Path) -> None:
    root = host(tmp_path, "0::/\n")
    assert Capacity().memory_gb_of(4, root=root) == 16
    assert Capacity(cpus=6, memory_gb=10).memory_gb_of(4, root=root) == 10
    assert Capacity(cpus=6, memory_gb=10).cpus_of(4, root=root) == 6


def test_the_narrowest_group_limits(tmp_path: Path) -> None:
    files = {
        "a__b__memory_max": "max",
        "a__memory_max": str(8 * GIB),
        "a__cpu_max": "max",
        "a__b__cpu_max": "50000 100000",
    }
    root = host(tmp_path, "0::/a/b\n", **files)
    assert Capacity().memory_gb_of(1, root=root) == 8
    assert Capacity().cpus_of(1, root=root) == 0.5


def test_groups_of_version_1_limit_too(tmp_path: Path) -> None:
    root = host(tmp_path, "4:memory:/x\n2:cpu,cpuacct:/x\n0::/\n")
    for name, content in (
        ("memory/x/memory.limit_in_bytes", str(2 * GIB)),
        ("cpu/x/cpu.cfs_quota_us", "25000"),
        ("cpu/x/cpu.cfs_period_us", "100000"),
        ("cpu/cpu.cfs_quota_us", "-1"),
    ):
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert Capacity().memory_gb_of(1, root=root) == 2
    assert Capacity().cpus_of(1, root=root) == 0.25


def test_a_host_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        Capacity().memory_gb_of(1, root=tmp_path)
    (host(tmp_path, "") / "proc/meminfo").write_text("nothing")
    with pytest.raises(ValueError, match="MemTotal"):
        Capacity().memory_gb_of(1, root=tmp_path)


def test_this_host_offers_something() -> None:
    assert Capacity().cpus_of(1) > 0
    assert Capacity().memory_gb_of(1) > 0
