"""Strict isolation on a real rack of one machine: a helper of root, a service without privilege, jobs of two users."""

from collections.abc import Generator
from dataclasses import replace
import json
import os
from pathlib import Path
import re
import signal
import socket
import subprocess
import sys
import uuid

import pytest

from tests.security import strict_host
from tests.security.strict_host import FIRST_UID, SERVICE, StrictHost
from tests.security.test_attacks import ATTACK, HOME_FILES, SECRET_FILES
from tests.security.test_proc import WALK
from tests.worker import launchers
from tests.worker.attempt import wait_for
from tests.worker.bundles.tars import store, tar_of
from torchyard.contract.attempts.records import LaunchPlan
from torchyard.contract.states import EndReason
from torchyard.host.identity import identity_of
from torchyard.host.recordfiles import read_record, write_record
from worker.engines.local.launchers import strictness
from worker.host import mountpoints, process

HIDES = """
import os, pathlib
run, rank = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"]), os.environ["RANK"]
(run / f"hidden-{rank}").mkdir()
(run / f"hidden-{rank}" / "result").write_text(rank)
(run / f"hidden-{rank}" / "result").chmod(0o600)
pathlib.Path.home().joinpath("kept").write_text("of the owner")
print(os.getuid(), os.getpid(), len([name for name in os.listdir("/proc") if name.isdecimal()]))
print(os.listdir(pathlib.Path.home().parent), flush=True)
"""
SAVES_ON_SIGTERM = """
import os, pathlib, signal, sys
run, rank = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"]), os.environ["RANK"]
def save(*_):
    (run / f"saved-{rank}").touch()
    sys.exit(3)
signal.signal(signal.SIGTERM, save)
(run / f"ready-{rank}").touch()
while True: signal.pause()
"""
HIDES_ITS_NAME = """
import os, pathlib, time
run = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "1000"], {})
    os._exit(0)
os.wait()
(run / "ready-0").touch()
time.sleep(1000)
"""
LOOKS_AROUND = """
import os, pathlib, socket, sys
print(sorted(name for _, name in socket.if_nameindex()))
print(os.path.exists(os.environ["OTHER"]), os.path.exists(os.environ["DATABASE"]))
print(os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize)
print(sorted(os.listdir("/dev")))
for folder in (os.environ["TORCHYARD_RUN_DIR"], sys.argv[1]):
    pathlib.Path(folder, "mine").write_text("x")
    print(os.listdir(folder), pathlib.Path(sys.argv[2]).exists())
"""
TRAINS = """
import torch, torch.distributed as dist, torchyard
dist.init_process_group("gloo")
run = torchyard.init()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.ones(2, 4)).sum().backward()
run.save_checkpoint({"model": model.state_dict()}, step=1)
print(dist.get_world_size(), flush=True)
dist.barrier()
dist.destroy_process_group()
"""

HOLDS = """
import os, pathlib, time
folder = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"], "artifacts")
(folder / "closed.pt").write_bytes(b"x")
with (folder / "open.pt").open("wb", buffering=0) as file:
    file.write(b"x")
    print("open", flush=True)
    while not (folder / "go").exists():
        time.sleep(0.05)
"""
TELLS = """
import sys
from pathlib import Path
from worker.attempts.files.matching import Search
from worker.attempts.files.writers import open_for_writing
root = Path(sys.argv[1])
found = open_for_writing(root, Search(root).find((), ["*.pt"]).values())
print(found.written, found.unknown)
"""

pytestmark = pytest.mark.usefixtures("strict_isolation")


@pytest.fixture(scope="module")
def host() -> Generator[StrictHost]:
    with strict_host.strict_host() as host:
        yield host


def test_each_owner_has_a_uid_and_a_home_of_which_the_service_reads_all(host: StrictHost) -> None:
    show = "import os, pathlib\nprint(os.getuid(), os.listdir(pathlib.Path.home().parent), flush=True)"
    attempt, other = host.attempt(HIDES, world_size=2), host.attempt(show, owner="bob")
    for one in (attempt, other):
        assert one.report().reason is EndReason.COMPLETED, host.logs()
    result = attempt.run.job / "hidden-1" / "result"
    assert host.run_as_service("cat", str(result), str(attempt.own_folders.home / "kept")) == "1of the owner"
    assert result.stat().st_uid == SERVICE
    assert result.stat().st_mode & 0o777 == 0o600
    numbers, homes = attempt.log("rank-1").splitlines()
    uid, pid, count = map(int, numbers.split())
    assert uid == host.state.uid_of("ada")
    assert pid < 20
    assert count <= 5  # the first one, the launcher, the door and two ranks: nothing from outside
    others, homes_of_other = other.log("rank-0").split()
    assert (homes, homes_of_other) == ("['ada']", "['bob']")
    assert uid != int(others)
    assert {uid, int(others)} <= set(range(FIRST_UID, FIRST_UID + 4))


def test_the_service_is_told_who_writes_a_file_of_the_job(host: StrictHost) -> None:
    attempt = host.attempt(HOLDS)
    attempt.wait_for_file("artifacts/open.pt")
    wait_for(lambda: "open" in attempt.log("rank-0"), "the open file")
    asks = (sys.executable, "-P", "-c", TELLS, str(attempt.run.artifacts))
    assert host.run_as_service("env", f"PYTHONPATH={strict_host.ROOT}", *asks) == "{('open.pt',)} set()\n"
    host.run_as_service("touch", str(attempt.run.artifacts / "go"))
    assert attempt.report().reason is EndReason.COMPLETED, host.logs()
    assert host.run_as_service("env", f"PYTHONPATH={strict_host.ROOT}", *asks) == "set() set()\n"


def test_a_job_writes_no_file_of_proc(host: StrictHost) -> None:
    attempt = host.attempt(WALK.read_text())
    assert attempt.report().reason is EndReason.COMPLETED, host.logs()
    assert json.loads(attempt.log("rank-0")) == {"named": False, "opened": []}


def test_a_job_touches_only_what_is_its_own(host: StrictHost, tmp_path: Path) -> None:
    victim = host.attempt("open('secret', 'w').write('x')")
    assert victim.report().reason is EndReason.COMPLETED
    secrets = [*(host.data / name for name in SECRET_FILES), *(tmp_path / name for name in HOME_FILES)]
    for file in secrets:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("key")
    name, me = f"torchyard-{uuid.uuid4()}", identity_of(os.getpid())
    assert me is not None
    (host.data / "blobs").mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as redis:
        listener.bind(f"\0{name}")
        listener.listen()
        redis.bind(str(host.data / "redis.sock"))
        redis.listen()
        (host.data / "redis.sock").chmod(0o777)
        targets = {
            "data": str(host.data),
            "home": str(tmp_path),
            "code": str(host.code),
            "another_run": str(victim.run.root),
            "temporary": "/tmp",
            "secret_files": SECRET_FILES,
            "home_files": HOME_FILES,
            "processes": {"the tests": (os.getpid(), me.start_time)},
            "redis": str(host.data / "redis.sock"),
            "host": "127.0.0.1",
            "port": 1,
            "abstract": name,
        }
        (host.code / "targets.json").write_text(json.dumps(targets))
        attempt = host.attempt(ATTACK.read_text(), args=[str(host.code / "targets.json")])
        assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    found = json.loads((attempt.run.job / "attacks.json").read_text())
    got = {attack: result for attack, result in found.items() if result.startswith("got")}
    assert {attack for attack in got if "the first process" not in attack} == OF_ITS_OWN, got
    assert got["list runs"] == f"got ['{attempt.job_id}']"
    assert not Path("/tmp/torchyard-attack").exists()
    assert not attempt.own_folders.temporary.exists()
    assert all(file.read_text() == "key" for file in secrets)


OF_ITS_OWN = {"list runs", "list data", "list /tmp", "write /tmp/torchyard-attack"}
"""What an attack gets, in mounts of its own. What it takes for its supervisor is bubblewrap's first process inside."""


def test_sigterm_reaches_the_ranks_and_their_grace_counts(host: StrictHost) -> None:
    attempt = host.attempt(SAVES_ON_SIGTERM, world_size=2)
    for rank in (0, 1):
        attempt.wait_for_file(f"ready-{rank}")
    attempt.stop(grace=60)
    report = attempt.report()
    assert report.reason is EndReason.CANCELLED, host.logs()
    assert "killed" not in report.message
    assert (attempt.run.job / "saved-0").exists()
    assert (attempt.run.job / "saved-1").exists()


@pytest.mark.thorough
def test_a_rank_that_ignores_sigterm_is_killed_after_its_grace(host: StrictHost) -> None:
    text = SAVES_ON_SIGTERM.replace("SIGTERM, save", "SIGTERM, signal.SIG_IGN")
    attempt = host.attempt(text)
    attempt.wait_for_file("ready-0")
    attempt.stop(grace=0)
    assert "killed after a grace" in attempt.report().message
    assert attempt.processes() == []


def test_nothing_outlives_a_killed_supervisor(host: StrictHost) -> None:
    attempt = host.attempt(HIDES_ITS_NAME)
    attempt.wait_for_file("ready-0")
    before = attempt.processes()
    assert len(before) == 5  # the one that hides its name, and the door, too
    assert attempt.program is not None
    attempt.program.kill()
    attempt.program.wait()
    wait_for(lambda: not any(process.is_alive(item) for item in before), "the end of all processes")


def test_nothing_outlives_the_keeper_of_an_attempt(host: StrictHost) -> None:
    attempt = host.attempt(HIDES_ITS_NAME)
    attempt.wait_for_file("ready-0")
    before = attempt.processes()
    keeper = json.loads((host.state.folder / "attempts" / f"{attempt.job_id}.1.keeper").read_text())["pid"]
    os.kill(keeper, signal.SIGKILL)
    report = attempt.report()
    assert report.reason is EndReason.WORKER_LOST, report
    assert "helper" in report.message
    wait_for(lambda: not any(process.is_alive(item) for item in before), "the end of all processes")


def test_a_job_sees_loopback_no_foreign_file_and_the_working_folder_of_its_own_job_which_it_writes(
    host: StrictHost,
) -> None:
    (host.data / "torchyard.db").touch()
    env = {"OTHER": str(host.folder / "state"), "DATABASE": str(host.data / "torchyard.db")}
    attempt, other = (host.prepared(LOOKS_AROUND, env=env) for _ in range(2))
    for one in (attempt, other):
        one.run.work.mkdir(mode=0o700)
    plan = read_record(attempt.run.launch, LaunchPlan)
    assert plan is not None
    write_record(attempt.run.launch, replace(plan, argv=[*plan.argv, str(attempt.run.work), str(other.run.work)]))
    host.give_to_service()
    attempt.start()
    assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    names, exists, shm, devices, _, written = attempt.log("rank-0").splitlines()
    assert (names, exists, shm) == ("['lo']", "False False", str(64 << 20))
    assert not re.search("nvidia|sd|vd|kmsg|mem", devices)
    assert written == "['mine'] False"
    assert (attempt.run.work / "mine").stat().st_uid == SERVICE


@pytest.mark.thorough
def test_two_ranks_train_together_without_a_network(host: StrictHost) -> None:
    attempt = host.attempt(TRAINS, world_size=2, launcher=strict_host.TORCHRUN, env={"GLOO_SOCKET_IFNAME": "lo"})
    assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    assert attempt.log("rank-1") == "2\n"
    assert list(attempt.run.checkpoints.glob("*/manifest.json"))


def test_secrets_reach_the_ranks_and_nobody_else(host: StrictHost) -> None:
    text = "import os, time\nprint(os.environ['KEY'], flush=True)\nopen('told', 'w')\ntime.sleep(100)"
    attempt = host.attempt(text, secrets={"KEY": "the value"})
    attempt.wait_for_file("told")
    assert attempt.log("rank-0") == "the value\n"
    for uid in (SERVICE, FIRST_UID + 3):
        assert _ask_as(uid, attempt.run.secrets) in {b"", b"refused"}
    for file in (*attempt.run.ctl.rglob("*"), *host.folder.glob("*.log")):
        assert file.is_socket() or file.is_dir() or b"the value" not in file.read_bytes()
    attempt.stop(grace=0)
    attempt.report()


@pytest.mark.thorough
def test_ranks_show_their_stacks(host: StrictHost) -> None:
    attempt = host.attempt(SAVES_ON_SIGTERM)
    attempt.wait_for_file("ready-0")
    command = (
        "import sys, time, pathlib\n"
        "from torchyard.host.recordfiles import read_record\n"
        "from torchyard.contract.attempts.records import ProcessIdentity\n"
        "from torchyard.contract.attempts.rundir import RunDir\n"
        "from worker.engines.local import stacks\n"
        "run = RunDir(pathlib.Path(sys.argv[1]))\n"
        "read = stacks.request_stacks(run, read_record(run.supervisor, ProcessIdentity), ranks=[0])\n"
        "while not (found := read())[0].text and not found[0].note: time.sleep(0.02)\n"
        "print(found[0])\n"
    )
    python = strict_host.sys.executable
    found = host.run_as_service(python, "-P", "-c", command, str(attempt.run.root))
    assert f"{attempt.job_id}.py" in found
    assert strictness.recorded_processes(attempt.run)
    attempt.stop(grace=0)
    attempt.report()


def _ask_as(uid: int, path: Path) -> bytes:
    """Returns what a process of that user gets at a socket."""
    ask = (
        "import socket, sys\nc = socket.socket(socket.AF_UNIX)\n"
        "try: c.connect(sys.argv[1]); print(c.recv(99).decode(), end='')\n"
        "except OSError: print('refused', end='')"
    )
    command = ["setpriv", f"--reuid={uid}", "--clear-groups", "/usr/bin/python3", "-c", ask, str(path)]
    return subprocess.run(command, capture_output=True, check=True).stdout


def test_a_group_of_processes_ends_with_its_attempt() -> None:
    root = strict_host.cgroup_v2()
    if root is None:
        pytest.skip("this machine has no cgroup v2 that this user may change")
    folder = root / f"torchyard-{uuid.uuid4()}"
    folder.mkdir()
    try:
        with strict_host.strict_host([f"--cgroup={folder}"]) as host:
            attempt = host.attempt(HIDES_ITS_NAME)
            attempt.wait_for_file("ready-0")
            group = folder / f"{attempt.job_id}.1"
            inside = {int(line) for line in (group / "cgroup.procs").read_text().split()}
            assert {item.pid for item in attempt.processes()} <= inside
            attempt.stop(grace=0)
            attempt.report()
            assert not group.exists()
    finally:
        wait_for(lambda: _is_removed(folder), "the end of the group's last process")


@pytest.mark.parametrize("limit", ["memory", "pids"])
def test_a_job_cannot_exceed_its_limits(limit: str) -> None:
    root = strict_host.cgroup_v2()
    if root is None or limit not in (root / "cgroup.controllers").read_text().split():
        pytest.skip(f"cgroup v2 of this machine has no controller {limit}")
    folder = root / f"torchyard-{uuid.uuid4()}"
    folder.mkdir()
    takes = {
        "memory": "x = b'x' * (1 << 29)",
        "pids": "import os\nfor _ in range(100):\n  if not os.fork(): os.pause()",
    }
    value = {"memory": "256m", "pids": "40"}[limit]
    try:
        with strict_host.strict_host([f"--cgroup={folder}", f"--{limit}={value}"]) as host:
            assert host.attempt(takes[limit]).report().reason is not EndReason.COMPLETED
    finally:
        wait_for(lambda: _is_removed(folder), "the end of the group's last process")


def test_a_file_system_without_other_owners_is_refused_by_name() -> None:
    with strict_host.helper_alone(["--data-dir=/sys/kernel"]) as said:
        assert "cannot give files in /sys/kernel to the users of jobs" in said


def test_egress_is_the_network_of_the_host() -> None:
    with strict_host.strict_host(["--network=egress"]) as host:
        attempt = host.attempt("import socket\nprint(sorted(name for _, name in socket.if_nameindex()), flush=True)")
        assert attempt.report().reason is EndReason.COMPLETED, host.logs()
        assert attempt.log("rank-0").strip() == str(sorted(name for _, name in socket.if_nameindex()))


READS_A_BUNDLE = """
import os, pathlib, sys
folder, hidden = map(pathlib.Path, sys.argv[1:])
print((folder / "a" / "d.txt").read_text(), hidden.exists(), os.listdir(folder.parents[2]))
changes = [
    lambda: (folder / "a" / "d.txt").write_text("x"), lambda: (folder / "a").chmod(0o777), lambda: folder.rename("x"),
    lambda: (folder / "new").touch(),
]
for mount in map(pathlib.Path, ("in/data", "in/theirs")):
    print(mount.is_dir() and (mount / "a" / "d.txt").read_text())
    changes += [lambda at=mount: (at / "a" / "d.txt").write_text("x"), lambda at=mount: (at / "new").touch()]
for number, change in enumerate(changes):
    try:
        change()
    except OSError:
        continue
    sys.exit(f"change {number} of a bundle was made")
"""


def test_an_attempt_reads_its_owners_bundles_and_mounts_and_no_other(host: StrictHost) -> None:
    mine, other = (store(host.blobs, tar_of({"a/d.txt": (text, False)})) for text in (b"mine", b"other"))
    folder, theirs = host.unpacked(mine, owner="ada"), host.unpacked(other, owner="bob")
    attempt = host.prepared(READS_A_BUNDLE, args=[str(folder), str(theirs)], bundles=[mine])
    mountpoints.make(attempt.run.job, {"./in/data": str(folder), "./in/theirs": str(theirs)})
    host.give_to_service()
    attempt.start()
    assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    assert attempt.log("rank-0") == "mine False ['ada']\nmine\nFalse\n"


def test_a_bundle_that_is_not_unpacked_for_the_owner_is_refused(host: StrictHost) -> None:
    other = store(host.blobs, tar_of({"a/d.txt": (b"other", False)}))
    host.unpacked(other, owner="bob")
    report = host.attempt("print(1)", owner="ada", bundles=[other]).report()
    assert report.reason is EndReason.LAUNCH_FAILED
    assert "is missing or behind a link" in report.message


def test_a_command_runs_once_in_strict_isolation(host: StrictHost) -> None:
    program = ["/bin/sh", "-c", "echo $0 $MINE $SECRET; exit 5", "once"]
    attempt = host.command(program, env={"MINE": "1"}, secrets={"SECRET": "s3cret-value"})
    report = attempt.report()
    assert (report.reason, report.exit_code, report.message) == (
        EndReason.USER_ERROR,
        5,
        "the command exited with code 5",
    )
    assert attempt.log("rank-0") == "once 1 s3cret-value\n"


@pytest.mark.thorough
def test_a_program_behind_a_shell_saves_at_a_stop_in_strict_isolation(host: StrictHost) -> None:
    program = ["/bin/sh", "-c", '"$0" -c "$1"; true', sys.executable, launchers.TRAINS]
    attempt = host.command(program, env={}, secrets={})
    attempt.wait_for_file("ready-0")
    attempt.stop(grace=60)
    attempt.wait_for_file("told-0")
    (attempt.run.job / "go").touch()
    report = attempt.report()
    assert (report.reason, "killed" in report.message) == (EndReason.CANCELLED, False), host.logs()
    assert (attempt.run.job / "saved-0").exists()
    assert attempt.processes() == []


def _is_removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True


@pytest.mark.thorough  # a helper of its own takes two seconds of a processor
def test_a_job_whose_data_lie_below_tmp_has_its_own_tmp_and_reads_nothing_else_there() -> None:
    mine = Path("/tmp", f"torchyard-{uuid.uuid4()}")
    text = (
        "import os, pathlib\n"
        "run = pathlib.Path(os.environ['TORCHYARD_RUN_DIR']).parent\n"
        f"pathlib.Path('{mine}').write_text('x')\n"
        "data = run.parent.parent.parent\n"
        "for read in ((run / 'ctl/plan.json').read_text, (data / 'token').read_text):\n"
        "    try: print(read())\n"
        "    except OSError as error: print(type(error).__name__)\n"
        "for listed in (run / 'ctl', run / 'ctl/shown'):\n"
        "    try: print(os.listdir(listed))\n"
        "    except OSError as error: print(type(error).__name__)\n"
    )
    with strict_host.strict_host(below="/tmp") as host:
        (host.data / "token").write_text("secret")
        attempt = host.attempt(text)
        assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr") + host.logs()
        refused = ["PermissionError", "FileNotFoundError", "PermissionError", "PermissionError"]
        assert attempt.log("rank-0").splitlines() == refused
    assert not mine.exists()
