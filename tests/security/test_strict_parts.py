"""The parts of strict isolation that need no root: options, limits, uids, devices, and what the worker asks for."""

import errno
from pathlib import Path
import shutil
import subprocess
import sys

import pytest

from tests.security.test_proc import NAMES_ANOTHER
from torchyard.contract.errors import ConfigError
from torchyard.host.recordfiles import write_record
from worker.host import process
from worker.sandbox import naming
from worker.sandbox.helper.bubblewrap import Bind, Box, command, options
from worker.sandbox.helper.cgroups import Cgroups
from worker.sandbox.helper.config import Config
from worker.sandbox.helper.gpus import device_nodes
from worker.sandbox.helper.state import State
from worker.sandbox.levels import Isolation, level_of
from worker.sandbox.strict.protocol import Refusal
from worker.sandbox.strict.requirements import HelperNeeds

BOX = Box(
    env={"A": "1 2"},
    cwd="/run/job",
    network="none",
    shm=1 << 20,
    system=[],
    binds=[Bind(source="/tmp/0", target="/run/job", writable=True), Bind(source="/tmp/1", target="/run/input")],
    devices=["/dev/nvidia1"],
    files={"/etc/passwd": 7},
)


def test_the_options_of_a_box() -> None:
    found = " ".join(options(BOX, info=9))
    assert found.startswith(
        "--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup-try --unshare-net"
    )
    assert "--disable-userns --cap-drop ALL --new-session --die-with-parent" in found
    assert "--perms 1777 --size 1048576 --tmpfs /dev/shm --dev-bind /dev/nvidia1 /dev/nvidia1" in found
    assert "--ro-bind-data 7 /etc/passwd --bind /tmp/0 /run/job --ro-bind /tmp/1 /run/input" in found
    assert found.endswith("--remount-ro / --remount-ro /proc --clearenv --setenv A 1 2 --chdir /run/job --info-fd 9")


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
@pytest.mark.parametrize(("filtered", "answer"), [(1, "0"), (None, str(errno.EROFS))])
def test_with_devices_a_program_names_threads_though_it_writes_nothing_in_proc(
    filtered: int | None, answer: str
) -> None:
    box = Box(env={}, cwd="/", network="none", shm=1, system=[], devices=["/dev/zero"], filter=filtered)
    python = [sys.executable, "-I", "-c", NAMES_ANOTHER]
    mounts = ("--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
    argv = ["bwrap", *mounts, "--remount-ro", "/proc", "--", *command(box, python)]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip() == answer


@pytest.mark.parametrize(("ends", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 15)", 128 + 15)])
def test_what_lets_a_program_name_threads_ends_like_it(ends: str, code: int) -> None:
    argv = [sys.executable, "-P", "-I", "-m", naming.__name__, sys.executable, "-c", f"import os, sys; {ends}"]
    assert subprocess.run(argv, check=False).returncode == code


def test_only_egress_shares_the_network() -> None:
    egress = Box(env={}, cwd="/", network="egress", shm=1, system=[])
    assert "--unshare-net" not in options(egress)


def test_links_at_the_top_stay_links(tmp_path: Path) -> None:
    links = [path for path in (Path("/bin"), Path("/lib")) if path.is_symlink()]
    found = options(Box(env={}, cwd="/", network="none", shm=1, system=[*links, tmp_path]))
    for link in links:
        assert found[found.index(str(link)) - 2 : found.index(str(link))] == ["--symlink", str(link.readlink())]
    assert found[found.index(str(tmp_path)) - 1] == "--ro-bind"


def test_an_owner_keeps_a_uid(tmp_path: Path) -> None:
    state = State(tmp_path, range(1000, 1002))
    state.create()
    assert [state.uid_of(owner) for owner in ("ada", "bob", "ada")] == [1000, 1001, 1000]
    with pytest.raises(Refusal, match="all 2 uids"):
        state.uid_of("eve")
    assert State(tmp_path, range(1000, 1003)).uid_of("eve") == 1002
    assert State(tmp_path, range(2000, 2001)).uid_of("ada") == 1000  # others may run as that one


def test_an_attempt_is_claimed_once(tmp_path: Path) -> None:
    state = State(tmp_path, range(1000, 1001))
    state.create()
    me = process.identity(1)
    assert me is not None
    with state.claimed("job.1"):
        state.note_init("job.1", me)
        assert state.init_of("job.1") == me
        with pytest.raises(Refusal, match="runs already"), state.claimed("job.1"):
            pass
    with pytest.raises(Refusal, match="does not run"):
        state.init_of("job.1")
    write_record(tmp_path / "attempts" / "job.1.keeper", me.__class__(pid=me.pid, start_time=0, boot_id=me.boot_id))
    with state.claimed("job.1"):  # the one before was killed
        pass


def test_device_nodes_are_those_of_the_gpus_alone(tmp_path: Path) -> None:
    for minor in (0, 1):
        (tmp_path / "driver" / str(minor)).mkdir(parents=True)
        text = f"Model: \t\t H100\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n"
        (tmp_path / "driver" / str(minor) / "information").write_text(text)
    dev = tmp_path / "dev"
    dev.mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (dev / name).touch()

    def nodes(*uuids: str) -> list[str]:
        return [Path(node).name for node in device_nodes(uuids, driver=tmp_path / "driver", folder=dev)]

    assert nodes() == []
    assert nodes("GPU-1") == ["nvidia1", "nvidiactl", "nvidia-uvm"]
    with pytest.raises(Refusal, match="no GPU MIG-1"):
        nodes("GPU-1", "MIG-1")


@pytest.mark.parametrize("limit", ["memory", "pids"])
def test_a_limit_that_cannot_be_enforced_is_an_error(tmp_path: Path, limit: str) -> None:
    with pytest.raises(ConfigError, match=f"--{limit} cannot be enforced: no --cgroup is given"):
        (Cgroups(root=None, memory=1) if limit == "memory" else Cgroups(root=None, pids=1)).prepare()
    with pytest.raises(ConfigError, match="is not a cgroup v2"):
        Cgroups(root=tmp_path).prepare()


def test_a_group_has_the_limits(tmp_path: Path) -> None:
    """With files in the place of the kernel's."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    cgroups = Cgroups(root=tmp_path, memory=1 << 30)
    assert cgroups.prepare() == [f"a limit of pids ({tmp_path} has no such controller)"]
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"  # the last of both
    group = cgroups.create("job.1")
    assert group is not None
    assert (group.folder / "memory.max").read_text() == str(1 << 30)


@pytest.mark.parametrize(
    ("limit", "memory", "cpus", "found"),
    [
        (None, 1 << 30, 2.5, (str(1 << 30), "250000 100000")),
        (1 << 20, 1 << 30, None, (str(1 << 20), None)),
        (1 << 40, 1 << 30, 0.0001, (str(1 << 30), "1000 100000")),
        (None, None, None, (None, None)),
    ],
)
def test_a_group_has_what_the_job_requests_within_the_limits(
    tmp_path: Path, limit: int | None, memory: int | None, cpus: float | None, found: tuple[str | None, str | None]
) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    cgroups = Cgroups(root=tmp_path, memory=limit)
    cgroups.prepare()
    group = cgroups.create("job.1", cpus=cpus, memory=memory)
    assert group is not None
    files = [group.folder / "memory.max", group.folder / "cpu.max"]
    assert tuple(path.read_text() if path.exists() else None for path in files) == found


def test_a_request_without_a_controller_limits_nothing(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("pids\n")
    cgroups = Cgroups(root=tmp_path)
    assert f"a limit of cpu ({tmp_path} has no such controller)" in cgroups.prepare()
    group = cgroups.create("job.1", cpus=1, memory=1 << 30)
    assert group is not None
    assert [*group.folder.iterdir()] == []


def test_strict_needs_a_helper(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="TORCHYARD_HELPER"):
        level_of(Isolation.STRICT)
    needs = HelperNeeds(helper=tmp_path / "helper.sock", data_dir=tmp_path)
    with pytest.raises(ConfigError, match=r"TORCHYARD_ISOLATION is strict, but the helper at .* cannot be reached"):
        level_of(Isolation.STRICT, needs=needs)


@pytest.mark.parametrize(
    "wrong", [["--service-user=0:0"], ["--service-user=nobody-here"], ["--service-user=5:5", "--shm=many"]]
)
def test_the_helper_refuses_wrong_options(tmp_path: Path, wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        Config.parse([f"--data-dir={tmp_path}", *wrong])
