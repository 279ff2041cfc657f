"""The doctor of a pool finds by a job in the cluster what would keep attempts from running there."""

from collections.abc import Callable
import json
import os
from pathlib import Path
import subprocess
import sys

import pytest

from tests.hosts.machine import wait_until
from tests.slurm.lab import SlurmLab
from worker.doctor.findings import Status
from worker.doctor.pool import check_pool
from worker.doctor.probe.job import Patience
from worker.settings import Settings

pytestmark = pytest.mark.slurm

QUICK = Patience(unlisted_s=5.0, queued_s=5.0, meet_s=5.0, running_s=60.0, ended_s=1.0)
CHECKS = ["slurm", "probe", "folders", "user", "versions", "isolation", "locks", "ports", "clocks"]

Checked = Callable[..., dict[str, tuple[Status, str]]]


@pytest.fixture
def checked(lab: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> Checked:
    """Returns a function that checks the lab's partition, and answers the findings by the names of the checks."""
    monkeypatch.setenv("SLURM_CONF", lab.environment()["SLURM_CONF"])
    (lab.folder / "data").mkdir()

    def check(partition: str = "main", *, allow_paths: str = "", interface: str = "") -> dict[str, tuple[Status, str]]:
        places = {"data_dir": lab.folder / "data", "allow_paths": allow_paths}
        of_pool = Settings.model_validate({**places, "pool": f"slurm:{partition}", "interface": interface})
        found = check_pool(of_pool, partition, patience=QUICK)
        return {item.check: (item.status, f"{item.fact} → {item.advice}") for item in found}

    return check


def test_the_doctor_of_a_sound_pool_finds_nothing_wrong_and_leaves_nothing(lab: SlurmLab) -> None:
    data = lab.folder / "data"
    data.mkdir()
    settings = {"TORCHYARD_DATA_DIR": str(data), "TORCHYARD_POOL": "slurm:main", **lab.environment()}
    argv = [sys.executable, "-P", "-m", "worker.doctor", "--json"]
    done = subprocess.run(argv, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    found = {item["check"]: item for item in json.loads(done.stdout)}
    of_pool = {name: found[name]["status"] for name in CHECKS}
    assert (done.returncode, {*of_pool.values()}) == (0, {"ok"}), done.stdout
    assert "devices" not in found and "starts" not in found
    assert found["probe"]["fact"] == "its job ran on n1 and n2"
    assert [*data.iterdir()] == []
    wait_until(lambda: not lab.run("squeue", "--noheader").stdout, "its job has left Slurm")


def test_a_data_directory_that_a_node_does_not_have_is_named(lab: SlurmLab, checked: Checked) -> None:
    lab.on_node(2, "mount", "-t", "tmpfs", "tmpfs", str(lab.folder / "data"))
    status, said = checked()["probe"]
    assert status is Status.FAILED and "only n1 told" in said and "same paths" in said
    assert "n2: " in said and "request.json is not there" in said


def test_a_folder_that_a_node_does_not_have_is_named(lab: SlurmLab, checked: Checked) -> None:
    shared = lab.folder / "shared" / "photos"
    shared.mkdir(parents=True)
    lab.on_node(2, "mount", "-t", "tmpfs", "tmpfs", str(shared.parent))
    found = checked(allow_paths=str(shared))
    assert found["folders"][0] is Status.FAILED
    assert f"n2 cannot read {shared}: No such file or directory" in found["folders"][1]
    assert {name for name, (status, _) in found.items() if status is not Status.OK} == {"folders"}


def test_a_python_that_a_node_does_not_have_is_named(lab: SlurmLab, checked: Checked) -> None:
    lab.on_node(2, "mount", "-t", "tmpfs", "tmpfs", str(Path(sys.prefix)))
    status, said = checked()["probe"]
    assert status is Status.FAILED and sys.executable in said and "same paths" in said


def test_an_interface_that_the_nodes_do_not_have_is_named(checked: Checked) -> None:
    status, said = checked(interface="ib0")["ports"]
    assert status is Status.FAILED and "ib0" in said


def test_an_account_that_slurm_refuses_and_a_partition_that_is_not_there_are_named(checked: Checked) -> None:
    ((check, (status, said)),) = checked("no-such").items()
    assert (check, status) == ("slurm", Status.FAILED) and "no-such" in said


def test_a_probe_that_does_not_start_says_what_slurm_says_and_leaves_no_job(lab: SlurmLab, checked: Checked) -> None:
    lab.run("sbatch", "-N2", "--exclusive", "--wrap", "sleep 1000")
    wait_until(lambda: lab.node_state(1) == "allocated", "the nodes are taken")
    found = checked()
    assert [*found] == ["slurm", "probe"]
    assert found["probe"][0] is Status.WARNING and "Resources" in found["probe"][1]
    assert lab.run("squeue", "--noheader", "-o", "%j").stdout.split() == ["wrap"]


def test_no_slurm_at_all_is_said(lab: SlurmLab, checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(lab.folder))
    ((check, (status, said)),) = checked().items()
    assert (check, status) == ("slurm", Status.FAILED) and "scontrol cannot be started" in said
