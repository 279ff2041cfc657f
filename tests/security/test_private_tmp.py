"""A job has a `/tmp` of its own also where the data directory and the installation lie below the host's, and finds of
these only what is its own."""

from datetime import timedelta
import json
import os
from pathlib import Path
import subprocess
import sys
from typing import Any

import pytest

from tests.worker.attempt import isolation
from torchyard.contract.attempts.records import LaunchPlan, Sandbox
from torchyard.contract.attempts.rundir import FROM_TMP, RunDir
from torchyard.contract.cluster.devices import IsolationReport
from worker.engines.local.supervisor import temporaries
from worker.host.attempt_key import AttemptKey
from worker.sandbox.policy import sandbox_of
from worker.sandbox.writable import WritableFolders

pytestmark = [
    pytest.mark.skipif(not isolation().own_mounts, reason="this host forbids mounts of one's own"),
    pytest.mark.usefixtures("below_tmp"),
]
TMP = "/tmp"
KEY = AttemptKey("job_1", 1)
LANDLOCK = IsolationReport(level=isolation().level, own_mounts=True, filtered=True)
BASIC = IsolationReport(level="basic", own_mounts=True, filtered=True)
LEVELS = [pytest.param(LANDLOCK, id="landlock"), pytest.param(BASIC, id="basic")]
IN_A_SANDBOX = """
import os, sys
from torchyard.contract.attempts.records import Sandbox
from worker.sandbox import entry
sandbox, program, targets = map(str, sys.argv[1:])
entry.enter(Sandbox.from_json(sandbox), reaps=False, ended=print, stops=bool)
exec(program)
"""
ATTACKS = """
import json, os, shutil
from pathlib import Path
t = {name: Path(path) for name, path in json.loads(targets).items()}
run, data, installation, top = t["run"], t["data"], t["installation"], t["top"]
token, plan, other = data / "token", run / "ctl" / "plan.json", data / "runs" / "other" / "1" / "job" / "secret"
ways = {"by name": "", "by /proc/self/root": "/proc/self/root", "by another process": f"/proc/{os.getppid()}/root"}
tried = {}
for way, before in ways.items():
    for path in (token, plan, other, run / "ctl" / "supervisor.log"):
        tried[f"read {path} {way}"] = lambda path=Path(f"{before}{path}"): path.read_text()
    for path in (top, data, data / "runs", run, run / "ctl", other.parent):
        tried[f"list {path} {way}"] = lambda path=Path(f"{before}{path}"): os.listdir(path)
    for path in (installation / "code.py", installation / "new", data / "new", run / "new", plan, top / "new"):
        tried[f"write {path} {way}"] = lambda path=Path(f"{before}{path}"): path.write_text("x")
for number in os.listdir("/proc/self/fd"):
    for up in ("..", "../..", "../ctl", "../../../.."):
        for name in ("ctl/plan.json", "plan.json", "token"):
            tried[f"{number} {up} {name}"] = lambda n=number, u=up, w=name: open(f"/proc/self/fd/{n}/{u}/{w}").read()
for folder in (run / "job", run / "input", run / "ctl" / "shown", installation):
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for up in ("../ctl/plan.json", "../plan.json", "../../../../token", "../token"):
        tried[f"{up} from {folder}"] = lambda d=opened, u=up: os.read(os.open(u, os.O_RDONLY, dir_fd=d), 100)
link = Path("/tmp/link")
link.symlink_to(plan)
tried |= {
    "a link": link.read_text,
    "mode": lambda: os.chmod(installation / "code.py", 0o666),
    "time": lambda: os.utime(installation / "code.py", (0, 0)),
    "length": lambda: os.truncate(installation / "code.py", 0),
    "removal": lambda: os.unlink(installation / "code.py"),
    "a hard link": lambda: os.link(installation / "code.py", "/tmp/hard"),
    "a move of the installation": lambda: os.rename(installation, "/tmp/moved"),
    "a move of all": lambda: os.rename(top, "/tmp/moved"),
    "a move by /var/tmp": lambda: os.rename(f"/var/tmp/{top.name}", "/var/tmp/moved"),
    "removal by /var/tmp": lambda: os.rmdir(f"/var/tmp/{top.name}"),
    "a move of the control files": lambda: os.rename(run / "ctl", run / "old"),
    "a move of what is shown": lambda: os.rename(run / "ctl" / "shown", "/tmp/shown"),
    "a stop": lambda: (run / "ctl" / "shown" / "stop.json").write_text("{}"),
    "an open folder": lambda: os.chmod(run, 0o777),
    "an open folder on the way": lambda: os.chmod(run / "ctl", 0o777),
    "a folder on the way": lambda: os.mkdir(run / "other"),
}
got = {}
for name, attack in tried.items():
    try:
        got[name] = repr(attack())[:200]
    except (PermissionError, FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        if error.errno not in (16, 18, 30):  # busy, another mount, read-only
            raise
reached = [os.path.join(folder, name) for folder, _, names in os.walk("/tmp") for name in names]
print(json.dumps([got, sorted(reached)]))
"""
WORKS = """
import json, os, socket, tempfile
from pathlib import Path
t = {name: Path(path) for name, path in json.loads(targets).items()}
Path("/tmp/run").mkdir()
Path("/tmp/run/log").write_text("x")
Path("/var/tmp/other").write_text("y")
os.rename("/tmp/run/log", "/tmp/log")
with tempfile.NamedTemporaryFile(dir="/tmp") as file, socket.socket(socket.AF_UNIX) as listening:
    file.write(b"x")
    listening.bind("/tmp/socket")
(t["run"] / "job" / "result").write_text((t["run"] / "input" / "config.json").read_text())
scope = {}
exec((t["installation"] / "code.py").read_text(), scope)
stops = os.path.lexists(t["run"] / "ctl" / "shown" / "stop.json")
print(json.dumps([scope["answer"], stops, sorted(os.listdir("/tmp"))]))
"""


def test_no_process_makes_mounts_in_the_namespaces_of_the_host() -> None:
    # In namespaces that others have made, so that a fault here does not change the host itself.
    others = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    program = "from worker.sandbox import namespaces; namespaces.make_mounts([], pids=False)"
    command = [*others, sys.executable, "-P", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "RuntimeError: an attempt's mounts are made in namespaces of its own alone" in done.stderr


@pytest.fixture
def below_tmp(tmp_path: Path) -> None:
    if not tmp_path.is_relative_to(TMP):
        pytest.skip("the folders of tests lie elsewhere")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with what no job may read."""
    folder = tmp_path / "data"
    for name in ("token", "runs/other/1/job/secret", "runs/job_1/1/ctl/plan.json", "runs/job_1/1/ctl/supervisor.log"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("secret")
    installation = tmp_path / "installation"
    installation.mkdir()
    (installation / "code.py").write_text("answer = 42")
    run = run_of(folder)
    run.create()
    run.work.mkdir()
    run.config.write_text("{}")
    return folder


def run_of(data: Path) -> RunDir:
    return RunDir(data / "runs" / "job_1" / "1")


def sandboxed(data: Path, level: IsolationReport) -> Sandbox:
    own_folders = WritableFolders(data).of(KEY, owner="ada")
    own_folders.create()
    readable = [data.parent / "installation"]
    found = sandbox_of(level, run=run_of(data), own_folders=own_folders, readable=readable, writable=(), gpus=False)
    assert found is not None
    return found


def ran(data: Path, sandbox: Sandbox, program: str) -> Any:
    run = run_of(data)
    top = Path(TMP, data.relative_to(TMP).parts[0])
    targets = {"run": run.root, "data": data, "installation": data.parent / "installation", "top": top}
    arguments = [sandbox.to_json(), program, json.dumps(targets, default=str)]
    command = [sys.executable, "-P", "-c", IN_A_SANDBOX, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=run.job, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("level", LEVELS)
def test_a_job_reaches_below_its_own_tmp_only_what_is_its_own(data: Path, level: IsolationReport) -> None:
    sandbox = sandboxed(data, level)
    assert sandbox.temporary_at == [TMP, "/var/tmp"]
    got, reached = ran(data, sandbox, ATTACKS)
    assert got == {}
    run = run_of(data)
    assert reached == ["/tmp/link"]  # nobody can list the folders on the way to what is mounted
    assert (run.launch.read_text(), (data / "token").read_text()) == ("secret", "secret")
    assert [path.name for path in (data.parent / "installation").iterdir()] == ["code.py"]


@pytest.mark.parametrize("level", LEVELS)
def test_a_job_writes_to_its_own_tmp_and_finds_what_is_its_own(data: Path, level: IsolationReport) -> None:
    run, sandbox = run_of(data), sandboxed(data, level)
    run.stop.write_text("{}")
    top = data.relative_to(TMP).parts[0]
    assert ran(data, sandbox, WORKS) == [42, True, sorted([top, "log", "other", "run", "socket"])]
    assert (run.job / "result").read_text() == "{}"
    assert (Path(sandbox.temporary) / "log").read_text() == "x"
    assert not Path("/tmp/log").exists()


def test_the_place_of_a_mount_is_no_link_and_does_not_stay(data: Path, tmp_path: Path) -> None:
    run, sandbox = run_of(data), sandboxed(data, LANDLOCK)
    plan = LaunchPlan(
        job_id=KEY.job_id,
        attempt=KEY.number,
        claimed_at=1,
        argv=["true"],
        env={},
        cwd="/",
        world_size=1,
        time_limit=timedelta(minutes=1),
        stall_timeout=timedelta(minutes=1),
        stop_grace=timedelta(seconds=1),
        sandbox=sandbox,
    )
    top = data.relative_to(TMP).parts[0]
    left = run.work / FROM_TMP
    left.mkdir()
    (left / top).symlink_to(tmp_path)
    (left / "log").write_text("x")
    temporaries.begin(run, plan)
    temporary = Path(sandbox.temporary)
    assert not os.path.lexists(temporary / top)
    assert [path.readlink() for path in temporary.iterdir() if path.is_symlink()] == [tmp_path]
    assert ran(data, sandbox, WORKS)[0] == 42
    temporaries.end(run, plan)
    assert not os.path.lexists(left / top)
    assert (left / "log").read_text() == "x"


def test_a_mount_follows_no_link_that_lies_at_its_place(data: Path, tmp_path: Path) -> None:
    sandbox = sandboxed(data, LANDLOCK)
    (Path(sandbox.temporary) / data.relative_to(TMP).parts[0]).symlink_to("/usr")
    with pytest.raises(AssertionError, match="FileExistsError"):
        ran(data, sandbox, WORKS)


@pytest.mark.parametrize("how", ["a link on the way", "as a whole"])
def test_tmp_stays_as_it_is_where_a_job_would_not_find_what_it_reads(data: Path, tmp_path: Path, how: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "installation")
    readable = tmp_path / "link" if how == "a link on the way" else Path(TMP)
    own_folders = WritableFolders(data).of(KEY, owner="ada")
    own_folders.create()
    level = IsolationReport(level="landlock", own_mounts=True)
    found = sandbox_of(level, run=run_of(data), own_folders=own_folders, readable=[readable], writable=(), gpus=False)
    assert found is not None
    assert found.temporary_at == ["/var/tmp"]


def test_ranks_of_several_nodes_see_the_hosts_tmp(data: Path) -> None:
    own_folders = WritableFolders(data).of(KEY, owner="ada")
    own_folders.create()
    run = run_of(data).of_node(1)
    found = sandbox_of(isolation(), run=run, own_folders=own_folders, readable=(), writable=(), gpus=False)
    assert found is not None
    assert found.temporary_at == []
