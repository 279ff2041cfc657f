"""The places that a job gets, what the operator's variables allow, and what is removed at the end."""

from dataclasses import replace
import os
from pathlib import Path
import sys
import tempfile
import uuid

import pytest

from tests.worker.attempt import Attempt, isolation
from torchyard.contract.attempts.records import Sandbox
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.states import EndReason
from torchyard.host.datadir import format_allowed_paths, parse_allowed_paths
from worker.engines.local.warm.manager import WarmProcess
from worker.host.attempt_key import AttemptKey
from worker.sandbox import levels
from worker.sandbox.policy import sandbox_of
from worker.sandbox.writable import WritableFolders

START = "warm"
ROOT = Path(__file__).parents[2]
KEY = AttemptKey("job_x", 1)
SHM = Path("/dev/shm")
HOLDS_SHARED_MEMORY = """
import ctypes, os, pathlib, sys, time
run = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
(run / "dumpable").write_text(str(ctypes.CDLL(None).prctl(3)))
pathlib.Path(sys.argv[1]).write_text("x")
held = open(sys.argv[1])
(run / "ready-0").touch()
while not (run / "go").exists(): time.sleep(0.01)
os._exit(1)
"""
HOLDS_SYSTEM_V_MEMORY = """
import ctypes, os, pathlib, sys
libc = ctypes.CDLL(None, use_errno=True)
assert libc.shmget(int(sys.argv[1]), 4096, 0o1600) >= 0, os.strerror(ctypes.get_errno())
print(pathlib.Path("/proc/sysvipc/shm").read_text().count(sys.argv[1]))
ours, theirs = os.openpty()
os.write(ours, b"hello\\n")
print(os.read(theirs, 100).decode().strip(), flush=True)
"""
WRITES_EVERYWHERE = """
import os, pathlib, tempfile
for name in ("TORCHYARD_RUN_DIR", "TMPDIR", "HOME", "XDG_CACHE_HOME"):
    folder = os.environ[name]
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    pathlib.Path(folder, "mine").write_text("x")
deep = pathlib.Path(tempfile.gettempdir())
for _ in range(200):
    deep /= "d"
    deep.mkdir()
deep.chmod(0)
"""
WRITES_TO_TMP = """
import os, pathlib, sys
others, literal = sys.argv[1:]
pathlib.Path("/tmp", literal).write_text("x")
pathlib.Path("/var/tmp/other").write_text("x")
assert not pathlib.Path("/tmp", others).exists()
print(os.environ["TMPDIR"])
print(sorted(path.name for path in pathlib.Path("/tmp").iterdir() if path.is_file()))
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.create()
    return run


def _sandbox(run: RunDir, tmp_path: Path, **environ: str) -> Sandbox:
    own_folders = WritableFolders(tmp_path).of(KEY, owner="ada")
    own_folders.create()
    level = IsolationReport(level="landlock", own_mounts=True)
    env = environ | own_folders.environment(environ)
    found = sandbox_of(level, run=run, own_folders=own_folders, readable=(), writable=(), gpus=False, environ=env)
    assert found is not None
    return found


def test_the_operators_shared_caches_are_read_and_never_written(run: RunDir, tmp_path: Path) -> None:
    torch_home, hugging_face = tmp_path / "torch", tmp_path / "hf"
    (hugging_face / "hub").mkdir(parents=True)
    (hugging_face / "token").write_text("the operator's login")
    torch_home.mkdir()
    found = _sandbox(run, tmp_path, TORCH_HOME=str(torch_home), HF_HOME=str(hugging_face))
    assert {str(torch_home), str(hugging_face / "hub")} <= set(found.readable)
    assert str(hugging_face) not in found.readable
    assert not {str(torch_home), str(hugging_face / "hub")} & set(found.writable)


def test_a_job_writes_only_its_own_places(run: RunDir, tmp_path: Path) -> None:
    found = _sandbox(run, tmp_path)
    assert found.writable == [str(run.job), str(tmp_path / "caches" / "ada"), found.temporary, str(SHM)]
    assert str(run.input) in found.readable
    above = {str(path) for path in (*run.ctl.parents, Path.home(), *Path.home().parents, run.ctl)}
    assert not above & set(found.readable)


def test_a_temporary_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_folders = WritableFolders(tmp_path).of(KEY, owner="ada")
    own_folders.temporary.mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(PermissionError, match="is not a folder of this user"):
        own_folders.create()
    monkeypatch.undo()
    own_folders.temporary.rmdir()
    own_folders.temporary.symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="is not a folder of this user"):
        own_folders.create()
    own_folders.temporary.unlink()
    own_folders.temporary.parent.rmdir()


def test_temporary_folders_of_ended_attempts_are_removed_and_others_stay(tmp_path: Path) -> None:
    own_folders, other = WritableFolders(tmp_path), WritableFolders(tmp_path / "another worker")
    kept, ended = AttemptKey("job_kept", 1), AttemptKey("job_ended", 1)
    folders = [own_folders.of(key, owner="ada").temporary for key in (kept, ended)] + [
        other.of(ended, owner="a").temporary
    ]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    own_folders.remove_other_temporaries({kept})
    assert [folder.exists() for folder in folders] == [True, False, True]
    own_folders.remove_temporary(kept)
    other.remove_temporary(ended)
    assert not any(folder.parent.exists() for folder in folders)


def test_a_jobs_home_stays_and_its_temporary_files_go_however_deep(attempt: Attempt) -> None:
    attempt.start_job(WRITES_EVERYWHERE, world_size=1)
    report = attempt.report()
    assert report.reason is EndReason.COMPLETED, report
    assert (attempt.own_folders.home / "mine").read_text() == (attempt.run.job / "mine").read_text() == "x"
    assert not attempt.own_folders.temporary.exists()


@pytest.mark.skipif(not isolation().own_mounts, reason="this host forbids mounts of one's own")
def test_the_systems_temporary_folders_are_the_attempts_own(
    warm_process: WarmProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where Python looks for modules below /tmp, as tests of others may have it do, /tmp stays the system's.
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.startswith("/tmp/")])
    others, literal = Path("/tmp", f"others-{uuid.uuid4()}"), Path("/tmp", f"literal-{uuid.uuid4()}")
    others.write_text("x")
    try:
        with tempfile.TemporaryDirectory(dir=ROOT, prefix=".test-") as folder:  # not below a folder that is replaced
            attempt = Attempt.create(Path(folder), warm=warm_process, launcher="warm")
            attempt.start_job(WRITES_TO_TMP, args=[others.name, literal.name], world_size=1)
            report = attempt.report()
            assert report.reason is EndReason.COMPLETED, report
            assert attempt.log("rank-0", "stdout").splitlines() == ["/tmp", f"['{literal.name}', 'other']"]
            assert not literal.exists() and not attempt.own_folders.temporary.exists()
    finally:
        others.unlink()


@pytest.mark.skipif(isolation().level != "landlock", reason="this host has no Landlock")
def test_an_error_in_the_systems_temporary_folder_names_that_of_the_job(attempt: Attempt) -> None:
    attempt.isolation = replace(isolation(), own_mounts=False, own_pids=False)
    literal = f"/tmp/literal-{uuid.uuid4()}"
    attempt.start_job(f"open({literal!r}, 'w')", world_size=1)
    message = attempt.report().message
    assert literal in message
    assert message.endswith(
        f"Jobs have a temporary folder of their own: the variable TMPDIR, {attempt.own_folders.temporary}"
    )


@pytest.mark.parametrize("level", ["off", "shared"])
def test_shared_memory_files_that_an_attempt_held_are_removed_and_others_stay(attempt: Attempt, level: str) -> None:
    shared = replace(isolation(), own_mounts=False, own_pids=False)
    attempt.isolation = levels.OFF if level == "off" else shared
    mine, others = SHM / f"mine-{uuid.uuid4()}", SHM / f"others-{uuid.uuid4()}"
    others.write_text("x")
    try:
        attempt.start_job(HOLDS_SHARED_MEMORY, args=[str(mine)], world_size=1)
        attempt.wait_for_file("ready-0")
        assert mine.exists()
        assert (attempt.run.job / "dumpable").read_text() == "1"  # else none but root sees what a process holds
        attempt.stop(grace=0)
        attempt.report()
        assert (mine.exists(), others.exists()) == (False, True)
    finally:
        others.unlink()


@pytest.mark.skipif(not isolation().own_mounts, reason="this host forbids mounts of one's own")
def test_shared_memory_of_its_own_ends_with_an_attempt(attempt: Attempt) -> None:
    mine = SHM / f"mine-{uuid.uuid4()}"
    attempt.start_job(HOLDS_SHARED_MEMORY, args=[str(mine)], world_size=1)
    attempt.wait_for_file("ready-0")
    assert not mine.exists()
    attempt.stop(grace=0)
    attempt.report()


@pytest.mark.skipif(not isolation().own_mounts, reason="this host forbids mounts of one's own")
def test_system_v_memory_ends_with_an_attempt_and_terminals_are_its_own(attempt: Attempt) -> None:
    attempt.start_job(HOLDS_SYSTEM_V_MEMORY, args=[str(key := uuid.uuid4().int % (1 << 31))], world_size=1)
    report = attempt.report()
    assert report.reason is EndReason.COMPLETED, report
    assert attempt.log("rank-0", "stdout").splitlines() == ["1", "hello"]
    assert str(key) not in Path("/proc/sysvipc/shm").read_text()


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        ("", {}),
        ("/a", {"/a": False}),
        ("/a:/b:rw:/c", {"/a": False, "/b": True, "/c": False}),
        ("/rw:rw::/b", {"/rw": True, "/b": False}),
        ("rw", {"rw": False}),
    ],
)
def test_allowed_paths_say_which_jobs_may_write(text: str, folders: dict[str, bool]) -> None:
    found = parse_allowed_paths(text)
    assert found == {Path(path): writable for path, writable in folders.items()}
    assert parse_allowed_paths(format_allowed_paths(found)) == found
