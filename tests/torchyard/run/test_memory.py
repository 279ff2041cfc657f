"""How much memory is free: the narrowest limit counts."""

from pathlib import Path

import pytest

from torchyard.run.memory import FreeMemory, describe_shortage, free_memory


def limit(folder: Path, *, names: tuple[str, str], limit: str, used: int, cache: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{cache}\n")


@pytest.mark.parametrize("version", [1, 2])
def test_a_control_group_above_ours_may_be_the_narrowest(tmp_path: Path, version: int) -> None:
    if version == 1:
        line, mount, unlimited = "4:cpu,memory:/a/b", "sys/fs/cgroup/memory", str(2**63 - 4096)
        names, cache = ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_inactive_file 1024"
    else:
        line, mount, unlimited = "0::/a/b", "sys/fs/cgroup", "max"
        names, cache = ("memory.max", "memory.current"), "inactive_file 1024"
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"7:pids:/elsewhere\n{line}\n")
    limit(tmp_path / mount / "a/b", names=names, limit=unlimited, used=2048, cache=cache)
    assert free_memory(tmp_path).total > 0
    limit(tmp_path / mount / "a", names=names, limit="4096", used=2048, cache=cache)
    assert free_memory(tmp_path) == FreeMemory(free=3072, total=4096)
    limit(tmp_path / mount, names=names, limit="2048", used=8192, cache=cache)
    assert free_memory(tmp_path) == FreeMemory(free=0, total=2048)


def test_a_container_that_does_not_show_its_own_group_shows_the_top(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/docker/0123\n")
    names = ("memory.max", "memory.current")
    limit(tmp_path / "sys/fs/cgroup", names=names, limit="4096", used=1024, cache="")
    assert free_memory(tmp_path) == FreeMemory(free=3072, total=4096)


def test_the_message_stays_where_it_does_not_say_how_much_was_wanted() -> None:
    assert describe_shortage("another rank has not the memory").startswith("another rank has not the memory, free ")
    assert describe_shortage("").startswith("free ")
    wanted = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 12884901888 bytes. Error code 12"
    assert describe_shortage(wanted).startswith("wanted 12.0 GiB, free ")
