"""What each level of isolation shuts, by the attacker's job in an attempt without a service."""

from collections.abc import Iterator
import json
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile
from typing import Any

import pytest

from tests.processes import kill_attempt
from tests.security.test_attacks import ATTACK
from tests.worker.attempt import Attempt, isolation
from tests.worker.engines.local.warm.light_process import LightWarmProcess
from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.errors import ConfigError
from torchyard.contract.states import EndReason
from worker.engines.local import supervisors
from worker.host import orphans, process
from worker.sandbox import landlock, levels, namespaces, seccomp
from worker.sandbox.levels import Isolation
from worker.sandbox.namespaces import Namespaces
from worker.sandbox.shared import TEMPORARY

START = "warm"
HERE = isolation()
BASIC = IsolationReport(level="basic", filtered=True)
MOUNTS = IsolationReport(level="basic", own_mounts=True, filtered=True)
LANDLOCK = IsolationReport(level="landlock", filtered=True)
needs_landlock = pytest.mark.skipif(HERE.level != "landlock", reason="this host has no Landlock")
needs_pids = pytest.mark.skipif(not HERE.own_pids, reason="this host forbids pid namespaces")
needs_mounts = pytest.mark.skipif(not HERE.own_mounts, reason="this host forbids mounts of one's own")

FORBIDS_INSPECTION = "from torchyard.host import inspection; inspection.forbid(); print(flush=True); input()"
CHAIN_LENGTH = 200_000
"""Bytes: one for each process of the chain, which ends there if nobody kills it."""
FORKS_IN_A_CHAIN = f"""
import os, pathlib, time
chain = os.open(pathlib.Path(os.environ["TORCHYARD_RUN_DIR"], "chain"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    for number in range({CHAIN_LENGTH}):
        os.write(chain, b"x")
        if number == 10:
            os.write(writing, b"x")
        time.sleep(PAUSE)
        if os.fork():
            os._exit(0)
os.read(reading, 1)
"""
CLAIMS_TO_BE_ANOTHER = """
import os, pathlib, subprocess, sys, time
env = os.environ | {"TORCHYARD_JOB_ID": sys.argv[1], "TORCHYARD_ATTEMPT": sys.argv[2]}
child = subprocess.Popen(["sleep", "600"], env=env)
pathlib.Path(os.environ["TORCHYARD_RUN_DIR"], "ready-0").touch()
child.wait()
"""
KILLS_THE_FIRST_PROCESS = """
import os, signal
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    os.kill(1, number)
    os.kill(os.getppid(), 0)
print("it lives", flush=True)
"""
INSPECTIONS = ("environ of", "maps of", "auxv of", "memory of", "what", "a file that", "a descriptor of", "ptrace of")
NAMESPACES = ("a user namespace", "a process in a user namespace", "a process in a user namespace, by clone3")
OTHER_USER = 65534
CLOSED = not all(folder.stat().st_mode & 0o001 for folder in Path(__file__).resolve().parents)
BECOMES_ANOTHER_USER = f"""
import sqlite3, http.client, subprocess
load = preload.load
def load_and_become_another_user():
    loaded = load()
    os.setgroups([])
    os.setgid({OTHER_USER})
    os.setuid({OTHER_USER})
    return loaded
preload.load = load_and_become_another_user
"""
"""Changes a warm process. The other user may not be able to import anything."""


@pytest.fixture
def victim() -> Iterator[ProcessIdentity]:
    """A process that forbids its inspection, as the service's programs do."""
    argv = [sys.executable, "-P", "-c", FORBIDS_INSPECTION]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline()
        found = process.identity(started.pid)
        assert found is not None
        yield found
        started.kill()


@pytest.mark.parametrize(
    "level", [BASIC, pytest.param(MOUNTS, marks=needs_mounts), pytest.param(LANDLOCK, marks=needs_landlock)], ids=str
)
def test_no_level_lets_a_job_inspect_the_service_or_use_privileges(
    attempt: Attempt, victim: ProcessIdentity, level: IsolationReport
) -> None:
    found = _attacked(attempt, level, victim=victim, groups=["processes", "privileges"])
    wanted = [name for name in found if name.startswith(INSPECTIONS)]
    assert len(wanted) == 2 * len(INSPECTIONS)  # of the victim, and of the supervisor
    wanted += ["a device", "a mount", "another user", "a program of root"]
    wanted += ["writable mounts", *NAMESPACES]
    assert {name: found[name] for name in wanted if not found[name].startswith("refused")} == {}
    signals = {result.split(":")[0] for name, result in found.items() if name.startswith("a signal")}
    assert signals == ({"refused"} if level is LANDLOCK else {"got None"})


@pytest.mark.skipif(not HERE.filtered, reason="this host has no filters of system calls")
def test_a_filter_shuts_limits_priorities_and_keys_without_namespaces(
    attempt: Attempt, victim: ProcessIdentity
) -> None:
    before = os.getpriority(os.PRIO_PROCESS, victim.pid)
    found = _attacked(attempt, BASIC, victim=victim, groups=["limits", "privileges"])
    wanted = [name for name in found if name.endswith((" of the victim", " of the supervisor"))]
    assert len(wanted) == 10
    sockets = ("a socket to the host of this machine", "a socket to a modem")
    refused = (*wanted, "a key of the user", "a lease on a file", *sockets)
    assert {name: found[name] for name in refused if not found[name].startswith("refused")} == {}
    assert os.getpriority(os.PRIO_PROCESS, victim.pid) == before


@needs_mounts
def test_a_job_makes_namespaces_where_the_operator_allows_that(attempt: Attempt, victim: ProcessIdentity) -> None:
    attempt.namespaces = True
    found = _attacked(attempt, HERE, victim=victim, groups=["privileges"])
    assert {name: found[name] for name in NAMESPACES if not found[name].startswith("got")} == {}
    assert found["writable mounts"].startswith("refused")


@needs_pids
def test_processes_of_its_own_shut_every_reach_without_landlock_and_filters(
    attempt: Attempt, victim: ProcessIdentity
) -> None:
    level = IsolationReport(level="basic", own_mounts=True, own_pids=True)
    found = _attacked(attempt, level, victim=victim, groups=["processes", "limits"])
    assert "a signal to the victim" in found
    assert {name: result for name, result in found.items() if not result.startswith("refused")} == {}


@needs_mounts
def test_mounts_of_its_own_shut_every_change_without_landlock(attempt: Attempt, victim: ProcessIdentity) -> None:
    found = _attacked(attempt, MOUNTS, victim=victim, groups=["changes"])
    assert {name: result for name, result in found.items() if not result.startswith("refused")} == {}


@needs_landlock
def test_landlock_shuts_reads_and_writes_without_mounts_of_its_own(attempt: Attempt, victim: ProcessIdentity) -> None:
    found = _attacked(attempt, LANDLOCK, victim=victim, groups=["files", "changes"])
    outside_landlock = {
        *("open the token to all", "close the data directory", "age the token", "change the configuration"),
    }
    assert {name for name, result in found.items() if not result.startswith("refused")} == outside_landlock


@needs_landlock
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(CLOSED, reason="only its owner may enter the folder of these sources")
def test_a_job_of_another_user_touches_only_what_is_its_own(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    light = LightWarmProcess(BECOMES_ANOTHER_USER)
    monkeypatch.setattr(orphans, "start", light.start)
    folder = Path(tempfile.mkdtemp())
    request.addfinalizer(lambda: shutil.rmtree(folder))
    warm = light.open()
    request.addfinalizer(warm.close)
    attempt = Attempt.create(folder, warm=warm, launcher="warm")
    start = supervisors.start

    def give_and_start(run: RunDir, **options: Any) -> ProcessIdentity | None:
        temporary = attempt.own_folders.temporary
        for path in (temporary.parent, temporary, folder, *folder.rglob("*")):
            os.chown(path, OTHER_USER, OTHER_USER)
        return start(run, **options)

    monkeypatch.setattr(supervisors, "start", give_and_start)
    found = _attacked(attempt, HERE, victim=light.started[-1])
    assert kill_attempt(attempt.job_id, attempt.number) == []
    assert {name: result for name, result in found.items() if not result.startswith("refused")} == {}
    assert (attempt.run.job / "attacks.json").stat().st_uid == OTHER_USER


@pytest.mark.parametrize("found", [True, False], ids=["with Landlock", "without it"])
def test_a_level_that_a_host_lacks_is_said_or_refused(monkeypatch: pytest.MonkeyPatch, found: bool) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 3 if found else 0)
    monkeypatch.setattr(namespaces, "allowed", lambda: Namespaces(mounts=False, pids=False))
    monkeypatch.setattr(seccomp, "is_allowed", lambda: False)
    view = levels.level_of(Isolation.AUTO)
    said = levels.describe(view)
    assert view.level == ("landlock" if found else "basic")
    assert "jobs share /dev/shm" in said
    assert "a job that forks without end may outlive its attempt" in said
    assert "jobs may use this user's keyrings" in said
    assert ("signals" in said, "jobs may touch all files" in said) == (found, not found)
    if not found:
        with pytest.raises(ConfigError, match="TORCHYARD_ISOLATION is require, but this host lacks Landlock"):
            levels.level_of(Isolation.REQUIRE)
    assert levels.level_of(Isolation.OFF).level == "off"


@pytest.mark.parametrize(
    ("level", "pause"),
    [
        pytest.param(HERE, 0, marks=needs_pids, id="processes of its own"),
        pytest.param(BASIC, 0.05, id="basic and slowly"),
        pytest.param(BASIC, 0, marks=pytest.mark.thorough, id="basic"),  # takes a minute of a processor to kill
        pytest.param(levels.OFF, 0, marks=pytest.mark.thorough, id="off"),
    ],
)
def test_a_chain_of_forks_ends_with_its_attempt(attempt: Attempt, level: IsolationReport, pause: float) -> None:
    attempt.isolation = level
    attempt.start_job(FORKS_IN_A_CHAIN.replace("PAUSE", str(pause)), world_size=1)
    report = attempt.report()
    assert report.reason is EndReason.COMPLETED, report
    length = (attempt.run.job / "chain").stat().st_size
    assert length > 0
    assert process.find(attempt.job_id, attempt.number) == []
    assert (attempt.run.job / "chain").stat().st_size == length
    assert length < CHAIN_LENGTH  # it was killed, and did not end by itself


@needs_pids
def test_a_job_cannot_end_or_stop_the_first_process(attempt: Attempt) -> None:
    attempt.isolation = HERE
    attempt.start_job(KILLS_THE_FIRST_PROCESS, world_size=1)
    report = attempt.report()
    assert report.reason is EndReason.COMPLETED, report
    assert "it lives" in attempt.log("rank-0", "stdout")


@needs_pids
def test_a_process_that_claims_to_be_of_another_attempt_does_not_keep_it_from_ending(
    attempt: Attempt, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    claims = Attempt.create(tmp_path / "claims", warm=attempt.warm, launcher=attempt.launcher)
    request.addfinalizer(lambda: kill_attempt(claims.job_id, claims.number))
    claims.start_job(CLAIMS_TO_BE_ANOTHER, args=[attempt.job_id, str(attempt.number)], world_size=1)
    claims.wait_for_file("ready-0")
    attempt.start_job("print('short')", world_size=1)
    assert attempt.report().reason is EndReason.COMPLETED
    assert not claims.run.exit.exists()
    claims.stop(grace=0)
    claims.report()


def _attacked(
    attempt: Attempt, level: IsolationReport, *, victim: ProcessIdentity, groups: list[str] | None = None
) -> dict[str, str]:
    """Returns what the attacks of `groups` got in an attempt."""
    folder = attempt.run.root.parent
    data, home = folder / "data", folder / "home"
    for path in (data / "token", data / "blobs" / "x", data / "runs" / "other" / "x", home / ".netrc"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    attempt.run.config.write_text("{}")
    others = folder.with_name(f"{folder.name}-of-others")
    others.mkdir()
    targets = {
        "data": str(data),
        "home": str(home),
        "code": str(attempt.script("").parent),
        "another_run": str(data / "runs" / "other"),
        "temporary": str(others),
        "hidden": [str(TEMPORARY)] if level.own_mounts else [],
        "secret_files": ["token"],
        "home_files": [".netrc"],
        "processes": {"the victim": (victim.pid, victim.start_time)},
        "groups": groups or ["files", "changes", "processes", "limits", "privileges"],
    }
    (attempt.run.root / "code" / "targets.json").write_text(json.dumps(targets))
    attempt.isolation = level
    attempt.start_job(ATTACK.read_text(), args=[str(attempt.run.root / "code" / "targets.json")], world_size=1)
    report = attempt.report()
    assert report.reason is EndReason.COMPLETED, report
    return json.loads((attempt.run.job / "attacks.json").read_text())
