"""The settings of a worker, from the environment."""

from datetime import timedelta
import os
from pathlib import Path

import pytest

from store.output.facts import OutputLimits
from tests import forked
from tests.approved import Approved
from torchyard.contract.cluster.devices import PoolRules
from torchyard.contract.errors import ConfigError
from worker.host.capacity import Capacity
from worker.settings import Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KEEP_LOGS", "30"),
        ("KEEP_RUNS", "-1d"),
        ("KEEP_RUNS_BYTES", "-1"),
        ("KEEP_LOGS_BYTES", "10GB"),
        ("MAX_LOG_BYTES", "64MiB"),
        ("MAX_MESSAGE_BYTES", "-1"),
        ("PACKAGES", "no"),
        ("PACKAGE_INDEX", "pypi.org"),
        ("SETUP_TIMEOUT", "10"),
        ("SETUP_TIMEOUT", "0s"),
        ("MAX_STOP_GRACE", "3651d"),
        ("MAX_IDLE_TIMEOUT", "59s"),
        ("JOB_CPUS", "0"),
        ("JOB_CPUS", "many"),
        ("JOB_MEMORY_GB", "nan"),
        ("JOB_MEMORY_GB", "-1"),
        ("UMASK", "0o22"),
        ("UMASK", "1777"),
        ("POOL", "gpu"),
        ("POOL", "slurm:--all"),
        ("POOL", "slurm:.."),
        ("POOL", "slurm:a,b"),
        ("SLURM_OWNER_ACCOUNTS", "alice"),
        ("SLURM_OWNER_ACCOUNTS", "alice=--uid=0"),
        ("SLURM_AHEAD", "0"),
        ("INTERFACE", "eth0 --x"),
    ],
)
def test_an_invalid_variable_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, approved: Approved
) -> None:
    monkeypatch.setenv(f"TORCHYARD_{name}", value)
    with pytest.raises(ConfigError, match=f"^TORCHYARD_{name}: ") as caught:
        Settings.load()
    assert caught.value.message == approved.of_row("message")
    assert "\n" not in caught.value.message


def test_a_umask_is_octal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.load().umask is None
    monkeypatch.setenv("TORCHYARD_UMASK", "")
    assert Settings.load().umask is None
    monkeypatch.setenv("TORCHYARD_UMASK", "027")
    assert Settings.load().umask == 0o027


def test_what_jobs_may_request_is_what_there_is_until_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHYARD_JOB_MEMORY_GB", "")
    assert Settings.load().capacity == Capacity()
    monkeypatch.setenv("TORCHYARD_JOB_CPUS", "3.5")
    monkeypatch.setenv("TORCHYARD_JOB_MEMORY_GB", "100")
    assert Settings.load().capacity == Capacity(cpus=3.5, memory_gb=100)


def test_relative_paths_are_those_of_the_folder_where_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"DATA_DIR": "data", "DATABASE_URL": "sqlite:///x.db", "ALLOW_PATHS": "a:b:rw"}.items():
        monkeypatch.setenv(f"TORCHYARD_{name}", value)
    found = Settings.load()
    monkeypatch.chdir("/")
    assert (found.root, found.database) == (tmp_path / "data", f"sqlite:///{tmp_path}/x.db")
    assert (found.allowed, found.writable) == ((tmp_path / "a", tmp_path / "b"), (tmp_path / "b",))
    monkeypatch.setenv("TORCHYARD_DATABASE_URL", "sqlite:////x.db")
    assert Settings.load().database == "sqlite:////x.db"


def test_a_worker_does_not_start_where_jobs_may_name_its_own_files(tmp_path: Path) -> None:
    env = {**os.environ, "TORCHYARD_DATA_DIR": str(tmp_path / "data"), "TORCHYARD_ALLOW_PATHS": str(tmp_path)}
    done = forked.run("worker", env=env, cwd=tmp_path)
    assert done.returncode == 1
    assert f"{tmp_path}: it contains the data directory {tmp_path / 'data'}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


def test_everything_is_kept_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept() -> list[object]:
        found = Settings.load()
        return [value for name, value in found if name.startswith("keep_")]

    assert kept() == [None] * 6
    names = ("LOGS", "LOGS_BYTES", "EVENTS", "EVENTS_BYTES", "RUNS", "RUNS_BYTES")
    for name in names:
        monkeypatch.setenv(f"TORCHYARD_KEEP_{name}", "")
    assert kept() == [None] * 6
    for name in names:
        monkeypatch.setenv(f"TORCHYARD_KEEP_{name}", "0" if name.endswith("BYTES") else "30d")
    assert kept() == [timedelta(days=30), 0] * 3


def test_the_output_of_an_attempt_is_limited_unless_the_variables_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = OutputLimits(log_bytes=64 << 20, message_bytes=4 << 20, point_bytes=128 << 20, checkpoints=10_000)
    assert Settings.load().output_limits == expected
    monkeypatch.setenv("TORCHYARD_MAX_LOG_BYTES", "1000")
    monkeypatch.setenv("TORCHYARD_MAX_MESSAGE_BYTES", "")
    monkeypatch.setenv("TORCHYARD_MAX_POINT_BYTES", "24")
    monkeypatch.setenv("TORCHYARD_MAX_CHECKPOINTS", "")
    monkeypatch.setenv("TORCHYARD_MAX_VERSIONS", "1")
    limits = OutputLimits(log_bytes=1000, message_bytes=None, point_bytes=24, checkpoints=None, versions=1)
    assert Settings.load().output_limits == limits
    monkeypatch.setenv("TORCHYARD_MAX_VERSIONS", "0")
    with pytest.raises(ConfigError, match="TORCHYARD_MAX_VERSIONS"):
        Settings.load()


@pytest.mark.parametrize(
    ("name", "value"),
    [("ACCOUNTS", "a,--uid=0"), ("QOS", "a b"), ("RESERVATIONS", "a;b"), ("CONSTRAINTS", "rack1,-w n1")],
)
def test_what_jobs_may_name_becomes_no_option_of_a_command(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"TORCHYARD_SLURM_{name}", value)
    with pytest.raises(ConfigError, match=rf"^TORCHYARD_SLURM_{name}\.\d: must be "):
        Settings.load()


def test_a_pool_has_a_folder_of_its_own_beside_the_worker_of_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHYARD_DATA_DIR", str(tmp_path))
    host = Settings.load()
    assert (host.partition, host.home, host.runs) == (None, tmp_path, tmp_path / "runs")
    monkeypatch.setenv("TORCHYARD_POOL", "slurm:gpu")
    pool = Settings.load()
    assert (pool.partition, pool.runs) == ("gpu", tmp_path / "pools" / "gpu" / "runs")
    assert pool.blobs == host.blobs


def test_the_operator_lists_what_jobs_may_ask_of_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.load().pool_rules == PoolRules()
    monkeypatch.setenv("TORCHYARD_SLURM_ACCOUNTS", "vision, nlp")
    monkeypatch.setenv("TORCHYARD_SLURM_CONSTRAINTS", "[rack1|rack2],a100&ib")
    monkeypatch.setenv("TORCHYARD_SLURM_OWNER_ACCOUNTS", "alice=vision, bob=nlp")
    assert Settings.load().pool_rules == PoolRules(
        accounts=["vision", "nlp"],
        constraints=["[rack1|rack2]", "a100&ib"],
        account_of={"alice": "vision", "bob": "nlp"},
    )
