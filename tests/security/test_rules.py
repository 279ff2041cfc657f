"""What no rule of a sandbox opens, whoever made it: what a link leads to, and folders of the service."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
import os
from pathlib import Path
import sys
from types import SimpleNamespace
from typing import cast

import pytest

from tests.security.test_levels import LANDLOCK, MOUNTS, needs_mounts
from tests.venvs import make_venv
from tests.worker.attempt import Attempt, isolation
from torchyard.contract.attempts.records import LaunchPlan
from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.errors import ConfigError
from torchyard.contract.states import EndReason
from torchyard.host.datadir import enter_empty_folder
from torchyard.host.recordfiles import read_record, write_record
from worker.bundles import unpack
from worker.engines.local import supervisors
from worker.sandbox import shared as shared_files
from worker.sandbox.helper import attempt_mounts
from worker.sandbox.helper.config import Config
from worker.sandbox.landlock import READ, restrict
from worker.sandbox.opening import closed_of, open_allowed, open_real

pytestmark = pytest.mark.skipif(isolation().level != "landlock", reason="this host has no Landlock")


def test_no_part_of_a_path_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "last").symlink_to("/proc/self/cwd")
    os.close(open_real(str(tmp_path / "real" / "inner")))
    for path in (tmp_path / "link" / "inner", tmp_path / "real" / "last", tmp_path / "link"):
        with pytest.raises(OSError, match="link"):
            open_real(str(path))


@pytest.mark.parametrize(
    ("wide", "level"),
    [
        (".", isolation()),
        *(pytest.param(wide, LANDLOCK, marks=pytest.mark.thorough) for wide in ("..", "/")),
        pytest.param("..", MOUNTS, marks=[needs_mounts, pytest.mark.thorough]),
    ],
)
def test_no_attempt_gets_a_folder_that_contains_its_run_directory(
    attempt: Attempt, wide: str, level: IsolationReport
) -> None:
    attempt.isolation = level
    attempt.writable = [attempt.run.root / wide]
    attempt.start_job("print('ran', flush=True)", world_size=1)
    report = attempt.report()
    assert report.reason is EndReason.LAUNCH_FAILED
    assert "it contains the data directory or what others have in it" in report.message


@pytest.mark.parametrize(
    ("name", "level"),
    [
        pytest.param("runs/job_other/1/job", LANDLOCK, id="runs-landlock"),
        *(
            pytest.param(name, LANDLOCK, id=f"{name}-landlock", marks=pytest.mark.thorough)
            for name in ("caches/other", "environments/other", "token")
        ),
        *(
            pytest.param(name, MOUNTS, id=f"{name}-mounts", marks=[needs_mounts, pytest.mark.thorough])
            for name in ("runs/job_other/1/job", "caches/other", "environments/other", "token")
        ),
    ],
)
def test_no_attempt_gets_what_else_lies_in_the_data_directory(
    attempt: Attempt, name: str, level: IsolationReport
) -> None:
    theirs = attempt.own_folders.home.parent.parent / name
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text("secret") if name == "token" else theirs.mkdir()
    attempt.isolation = level
    attempt.writable = [theirs]
    attempt.start_job("print('ran', flush=True)", world_size=1)
    report = attempt.report()
    assert report.reason is EndReason.LAUNCH_FAILED
    assert "a sandbox must not open the service's own files to jobs" in report.message


def test_what_an_attempt_has_below_its_own_folders_is_opened(tmp_path: Path) -> None:
    data, own = tmp_path / "data", tmp_path / "data" / "caches" / "ada"
    (own / "hub").mkdir(parents=True)
    (data / "caches" / "adam").mkdir()
    closed = closed_of([str(data / "caches")], data_dir=str(data), own=[str(own)])
    for path in (own, own / "hub", Path("/usr")):
        os.close(open_allowed(str(path), closed))
    for path in (data, data / "caches", data / "caches" / "adam", own / ".." / "adam", own / ".."):
        with pytest.raises(PermissionError):
            open_allowed(str(path), closed)


def test_to_open_a_path_costs_few_calls(tmp_path: Path) -> None:
    own = [str(tmp_path / str(number)) for number in range(20)]
    closed = closed_of(["/"], data_dir=str(tmp_path), own=own)
    calls: list[str] = []
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    opened = open_allowed("/usr/bin", closed)
    sys.setprofile(None)
    os.close(opened)
    assert len(calls) <= 60, "an attempt opens a hundred paths before it starts"


def test_no_attempt_starts_in_a_folder_that_became_a_link(attempt: Attempt, tmp_path: Path) -> None:
    folder = attempt.run.root / "code"
    attempt.write("print('ran', flush=True)")
    plan = read_record(attempt.run.launch, LaunchPlan)
    assert plan is not None
    (folder / "inner").symlink_to("/proc/self/cwd")
    write_record(attempt.run.launch, replace(plan, cwd=str(folder / "inner")))
    supervisors.start(attempt.run)
    report = attempt.report()
    assert report.reason is EndReason.LAUNCH_FAILED
    assert "link" in report.message


def test_the_helper_of_strict_opens_what_a_link_led_to_when_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the names and the opening, a name may have become a link."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "allowed").symlink_to("secret")
    monkeypatch.setattr(attempt_mounts.os.path, "realpath", str)
    with ExitStack() as stack, pytest.raises(OSError, match="link"):
        attempt_mounts._opened(tmp_path / "allowed", stack, closed=closed_of([]), writable=False)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("name", ["input", "job"])
def test_no_attempt_gets_what_a_link_in_place_of_its_folder_leads_to(attempt: Attempt, name: str) -> None:
    attempt.write("print('ran', flush=True)")
    folder = attempt.run.root / name
    folder.rename(folder.with_name("away"))
    folder.symlink_to("away" if name == "job" else "/proc/self/cwd")  # its log is there
    supervisors.start(attempt.run)
    report = attempt.report()
    assert report.reason is EndReason.LAUNCH_FAILED
    assert "link" in report.message


def test_a_process_that_unpacks_gets_no_folder_of_others(tmp_path: Path) -> None:
    (tmp_path / "fresh").symlink_to(tmp_path)
    assert "link" in _error_of(lambda: unpack.confine(tmp_path / "fresh"))
    assert "contains the data directory" in _error_of(lambda: restrict([("/", READ)]))


def test_no_worker_starts_where_all_jobs_read_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_files.check_place(tmp_path / "data")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/missing:{tmp_path}")
    with pytest.raises(ConfigError, match=f"must not lie in {tmp_path}, which all jobs read"):
        shared_files.check_place(tmp_path / "data")


@pytest.mark.parametrize("variable", ["TORCH_HOME", "HF_HOME", "SSL_CERT_DIR"])
def test_no_worker_starts_where_jobs_could_replace_what_all_read_by_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    shared, secret = tmp_path / "shared", tmp_path / "home"
    for folder in (shared, secret):
        folder.mkdir()
    (tmp_path / "by-link").symlink_to("shared")
    (shared / "hub").symlink_to(secret)  # what a job has put there
    own = shared if variable == "HF_HOME" else shared / "hub"
    for named in (own, tmp_path / "by-link" / own.relative_to(shared)):
        monkeypatch.setenv(variable, str(named))
        with pytest.raises(ConfigError, match=f"which all jobs read, is named in {shared}, which they may write"):
            shared_files.check_place(tmp_path / "data", writable=[shared])
    monkeypatch.setenv(variable, str(tmp_path / "other"))
    shared_files.check_place(tmp_path / "data", writable=[shared])


def test_a_supervisor_works_in_the_workers_empty_folder(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    enter_empty_folder(tmp_path)
    attempt.warm = None
    attempt.launcher = "torchrun"
    attempt.start("import time\ntime.sleep(600)")
    attempt.wait_for_file("logs/rank-0.stdout")
    assert Path(f"/proc/{attempt.supervisor.pid}/stat").exists()
    if os.geteuid() == 0:  # no other user may look
        assert Path(f"/proc/{attempt.supervisor.pid}/cwd").readlink() == tmp_path / "empty"
    attempt.stop(grace=0)
    attempt.report()
    assert list((tmp_path / "empty").iterdir()) == []


def _error_of(function: Callable[[], None]) -> str:
    """Returns the OSError with which the function ends in a child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            function()
        except OSError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        text = said.read().decode()
    os.waitpid(child, 0)
    return text


def test_the_helper_of_strict_opens_no_installation_that_jobs_may_write(tmp_path: Path) -> None:
    """The worker refuses it, too: but here it would be mounted for jobs that name no environment."""
    base, envs = tmp_path / "base", tmp_path / "envs"
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    (base / "lib" / f"python{minor}").mkdir(parents=True)
    (base / "lib" / f"python{minor}" / "os.py").touch()
    settings = make_venv(envs / "own") / "pyvenv.cfg"
    lines = [line for line in settings.read_text().splitlines() if not line.startswith("home")]
    settings.write_text("\n".join([*lines, f"home = {base}/bin"]))
    config = cast(Config, SimpleNamespace(environments=(envs,), data_dir=tmp_path / "data", allowed={}))
    assert base / "lib" in attempt_mounts.environment_paths(config)
    config = cast(Config, SimpleNamespace(environments=(envs,), data_dir=tmp_path / "data", allowed={base: True}))
    assert attempt_mounts.environment_paths(config) == [envs]
    config = cast(Config, SimpleNamespace(environments=(envs,), data_dir=base / "lib" / "data", allowed={}))
    assert attempt_mounts.environment_paths(config) == [envs]
