"""`torchyard doctor` on this host, with real servers, and with given answers of a driver and of PyTorch."""

from contextlib import closing
import json
import os
from pathlib import Path
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import text

from store.db.database import Database
from tests.approved import Approved
from tests.databases import Databases, PostgreSQLDatabases, on_both
from tests.servers import administered, free_port, redis_server, redis_server_with_password
from tests.torchyard.cli.terminal import in_terminal
from tests.worker.attempt import wait_for
from tests.worker.test_devices import GIB, FakeNvml
from torchyard.host.redis_rules import CHANNELS, COMMANDS, KEYS
from worker.doctor import disk, gpus, host, pytorch, services
from worker.doctor.findings import Finding, Status
from worker.settings import Settings

CHECKS = [
    "python",
    "kernel",
    "open files",
    "shm",
    "clock",
    "isolation",
    "data",
    "devices",
    "torch",
    "packages",
    "starts",
    "database",
    "service",
    "redis",
    "controller",
]
PLAIN = {key: value for key, value in os.environ.items() if not key.startswith("TORCHYARD_")}


class Driver(FakeNvml):
    def nvmlSystemGetDriverVersion(self) -> str | bytes:
        return b"595.71.05"


def statuses(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(item.check, item.status.value) for item in findings]


def test_no_check_fails_on_a_laptop_without_a_service_and_no_file_is_left(tmp_path: Path) -> None:
    folder = tmp_path / ".torchyard"
    code, screen = in_terminal(["doctor", "--data-dir", str(folder)], PLAIN, columns=60)
    assert code == 0, screen
    lines = [re.sub(r"\x1b\[[0-9]+m", "", line) for line in screen.splitlines()]
    checks = [line[9:21].strip() for line in lines if line.startswith(("ok", "warning", "failed"))]
    assert [check for check in checks if not check.startswith("gpu")] == CHECKS
    assert [line for line in lines if len(line) > 60 and " " in line[21:]] == []
    assert "not running (starts with torchyard up)" in " ".join(screen.split())
    assert lines[-1].startswith(f"{len(checks)} checks: none failed")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.thorough
def test_failed_checks_are_in_the_json_output(tmp_path: Path) -> None:
    settings = {
        "TORCHYARD_DATABASE_URL": f"postgresql://ada:s3cret@127.0.0.1:{free_port()}/torchyard",
        "TORCHYARD_REDIS_URL": f"redis://:s3cret@127.0.0.1:{free_port()}/0",
        "TORCHYARD_DATA_DIR": str(tmp_path),
        "TORCHYARD_LAUNCHER": "torchrun",
    }
    argv = [sys.executable, "-P", "-m", "torchyard.cli", "doctor", "--json"]
    done = subprocess.run(argv, env=PLAIN | settings, capture_output=True, text=True, check=False)
    found = {item["check"]: item for item in json.loads(done.stdout)}
    assert (done.returncode, found["database"]["status"], found["redis"]["status"]) == (1, "failed", "failed")
    assert "TORCHYARD_DATABASE_URL" in found["database"]["advice"] and "Redis" in found["redis"]["fact"].title()
    assert "s3cret" not in done.stdout + done.stderr


@on_both
def test_a_database_is_checked_for_its_revision_and_its_clock(database_url: str, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, database_url=database_url)
    found = services.check_database(settings)
    assert found.status is Status.OK and "(the newest)" in found.fact, found
    embedded = database_url.startswith("sqlite")
    assert ("clock within 0." in found.fact) is not embedded
    with closing(Database(database_url)) as database:
        for revision, status in (("0056", "failed"), ("9999", "failed")):
            with database.write() as session:
                session.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})
            found = services.check_database(settings)
            assert (found.status, bool(found.advice)) == (status, True), found
            assert revision in found.fact


@on_both
def test_a_missing_database_is_not_created(databases: Databases, tmp_path: Path) -> None:
    with databases.empty() as url:
        found = services.check_database(Settings(data_dir=tmp_path, database_url=url))
        if isinstance(databases, PostgreSQLDatabases):
            assert found.status is Status.FAILED and "migrations" in found.advice
        else:
            assert found.status is Status.OK and "does not exist yet" in found.fact
            assert not Path(url.removeprefix("sqlite:///")).exists()


def test_a_database_with_another_clock_is_reported(
    postgresql: PostgreSQLDatabases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgresql.migrated() as url:
        monkeypatch.setattr("store.probe.time", SimpleNamespace(time=lambda: 1_000_000_000.0))
        found = services.check_database(Settings(data_dir=tmp_path, database_url=url))
    assert found.status is Status.WARNING and " s ahead of this host's" in found.fact


def test_the_embedded_redis_is_configured_correctly(tmp_path: Path, approved: Approved) -> None:
    settings, folder = Settings(data_dir=tmp_path), tmp_path / "redis"
    folder.mkdir()
    with redis_server(folder) as url:
        found = services.check_redis(settings, embedded=Path(url.rpartition("@")[2]))
    assert found.status is Status.OK and "appendonly yes" in found.fact
    assert services.check_redis(settings, embedded=None).fact == approved("fact")


def test_rules_that_the_user_of_redis_lacks_are_named(tmp_path: Path, approved: Approved) -> None:
    (tmp_path / "server").mkdir()
    with redis_server(tmp_path / "server") as url, administered(url) as redis:
        commands = [f"+{name}" for name in COMMANDS if name not in {"evalsha", "hscan"}]
        redis.execute_command("ACL", "SETUSER", "limited", "on", ">p", "resetchannels", KEYS, CHANNELS, *commands)
        settings = Settings(data_dir=tmp_path, redis_url=f"unix://limited:p@{url.rpartition('@')[2]}")
        found = services.check_redis(settings, embedded=None)
        assert (found.status, found.advice) == (
            "failed",
            approved("advice"),
        )
        redis.execute_command("ACL", "SETUSER", "limited", "-info")
        assert services.check_redis(settings, embedded=None).status == "failed"


def test_a_redis_that_may_lose_or_refuse_writes_is_reported(tmp_path: Path, approved: Approved) -> None:
    with redis_server_with_password(tmp_path, "s3cret") as url:
        settings = Settings(data_dir=tmp_path, redis_url=url)
        with Redis.from_url(url) as redis:
            redis.config_set("maxmemory-policy", "allkeys-lru")
            found = services.check_redis(settings, embedded=None)
            assert found.status is Status.WARNING
            assert found.advice == approved("advice") and "allkeys-lru" in found.fact
            redis.replicaof("127.0.0.1", 1)
            assert "a replica" in services.check_redis(settings, embedded=None).fact
        wrong = Settings(data_dir=tmp_path, redis_url=url.replace("s3cret", "wr0ng"))
        found = services.check_redis(wrong, embedded=None)
    assert found.status is Status.FAILED and "wr0ng" not in found.fact + found.advice


@pytest.mark.parametrize(
    ("free", "inodes", "status"), [(20, 50, "ok"), (9, 50, "warning"), (0.1, 50, "failed"), (20, 1, "warning")]
)
def test_free_disk_space(
    free: float, inodes: int, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = SimpleNamespace(f_frsize=1, f_blocks=100 * GIB, f_bavail=int(free * GIB), f_files=100, f_favail=inodes)

    def statvfs(_path: Path) -> SimpleNamespace:
        return answer

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert statuses([*disk.check_disks(tmp_path / "data", tmp_path / "data" / "blobs", shared=False)]) == [
        ("data", status)
    ]
    assert [*tmp_path.iterdir()] == []


def test_a_disk_that_cannot_be_written_and_blobs_on_another_disk(tmp_path: Path, approved: Approved) -> None:
    [data, blobs] = disk.check_disks(Path("/proc/torchyard"), tmp_path / "blobs", shared=False)
    assert (data.status, blobs.check) == (Status.FAILED, "blobs")
    assert data.fact == approved("fact") and "writable" in data.advice


def test_gpus_and_the_processes_that_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    foreign = SimpleNamespace(pid=os.getpid(), usedGpuMemory=GIB)
    driver = Driver({"GPU-aaaa": [], "GPU-bbbb": [foreign]})
    found = [*gpus.check_devices(Settings(), driver=driver)]
    assert statuses(found) == [("devices", "ok"), ("gpu 0", "ok"), ("gpu 1", "warning")]
    assert found[0].fact == "driver 595.71.05, 2 GPUs"
    assert f"held by pid {os.getpid()} (" in found[2].fact
    driver.mig = 1
    assert "-mig 0" in [*gpus.check_devices(Settings(), driver=driver)][1].advice
    driver.failing = {"handle"}
    assert statuses([*gpus.check_devices(Settings(), driver=driver)])[1:] == [("gpu 0", "failed"), ("gpu 1", "failed")]


def test_a_gpu_that_a_job_of_ours_uses_is_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    title = "torchyard:job_1"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with subprocess.Popen([f"{title} attempt 1 rank 0", "60"], executable="/bin/sleep") as rank:
        wait_for(Path(f"/proc/{rank.pid}/cmdline").read_bytes, "its title")
        held = SimpleNamespace(pid=rank.pid, usedGpuMemory=GIB)
        found = [*gpus.check_devices(Settings(), driver=Driver({"GPU-aaaa": [held]}))]
        rank.kill()
    assert found[1].status is Status.OK and title in found[1].fact


TORCH: dict[str, Any] = {
    "version": "2.14.1+cu130",
    "cuda": "13.0",
    "available": True,
    "why": None,
    "devices": 2,
    "nccl": "2.30.7",
    "gloo": True,
}


@pytest.mark.parametrize(
    ("other", "count", "status", "expected"),
    [
        ({}, 2, "ok", "NCCL 2.30.7"),
        ({"available": False, "why": "driver too old"}, 0, "ok", "Gloo"),
        ({"available": False, "why": "driver too old"}, 2, "failed", "driver too old"),
        ({"cuda": None}, 2, "failed", "a build for CPUs"),
        ({"nccl": None}, 2, "failed", "no NCCL"),
        ({"gloo": False}, 0, "failed", "no Gloo"),
        ({"version": "2.9.0"}, 0, "warning", "not among the supported"),
    ],
)
def test_missing_parts_of_pytorch_are_reported(other: dict[str, Any], count: int, status: str, expected: str) -> None:
    found = pytorch.judge(TORCH | other, gpus=count)
    assert (found.status, expected in found.fact) == (status, True), found


@pytest.mark.parametrize(
    ("version", "status", "advice"),
    [
        ((3, 11, 9), "warning", "update Python to 3.11.10 or later"),
        ((3, 11, 10), "ok", ""),
        ((3, 12, 5), "warning", "update Python to 3.12.6 or later"),
        ((3, 12, 6), "ok", ""),
        ((3, 13, 0), "ok", ""),
        ((3, 10, 99), "warning", "create the environment with Python 3.11 to 3.13"),
    ],
)
def test_a_python_with_the_slow_parser_of_cookies_is_named(
    version: tuple[int, int, int], status: str, advice: str
) -> None:
    found = host.check_python(version)
    assert (found.check, found.status.value, found.advice) == ("python", status, advice)
    assert ("CVE-2024-7592" in found.fact) is ("update" in advice)
