"""The doctor of a pool and the commands of Slurm, for which processes of this host stand in: it follows one job."""

from collections.abc import Callable, Generator
from dataclasses import replace
import os
from pathlib import Path

import pytest

from tests.approved import Approved
from tests.worker.engines.slurm.stand_in import Slurm
from worker.doctor.findings import Status
from worker.doctor.pool import check_pool
from worker.doctor.probe.job import Patience
from worker.settings import Settings

QUICK = Patience(unlisted_s=60.0, queued_s=1.0, meet_s=20.0, running_s=60.0, ended_s=0.5)
INVALID = "Batch job submission failed: Invalid account or account/partition combination specified"

Checked = Callable[..., dict[str, tuple[Status, str]]]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Slurm]:
    slurm = Slurm.install(tmp_path / "slurm")
    monkeypatch.setenv("PATH", slurm.environ()["PATH"])
    yield slurm
    slurm.end()


@pytest.fixture
def checked(tmp_path: Path, slurm: Slurm) -> Checked:
    """Returns a function that checks the pool, and answers the findings by the names of the checks."""
    (tmp_path / "data").mkdir()

    def check(*, patience: Patience = QUICK, **settings: str) -> dict[str, tuple[Status, str]]:
        of_pool = Settings.model_validate(
            {"data_dir": tmp_path / "data", "pool": "slurm:main", "interface": "lo", **settings}
        )
        found = check_pool(of_pool, "main", patience=patience)
        return {item.check: (item.status, item.fact) for item in found}

    return check


def test_a_sound_pool_is_told_by_one_job_and_nothing_is_left(
    tmp_path: Path, slurm: Slurm, checked: Checked, approved: Approved
) -> None:
    found = checked(slurm_accounts="vision,other", slurm_qos="high", allow_paths=str(tmp_path))
    assert [*found] == ["slurm", "probe", "folders", "user", "versions", "isolation", "locks", "ports", "clocks"]
    assert Status.FAILED not in {status for status, _ in found.values()}, found
    assert found["slurm"][1] == approved("slurm")
    assert [*(tmp_path / "data").iterdir()] == []
    (options,) = slurm.submissions()
    assert {"--partition=main", "--nodes=2", "--account=vision", "--qos=high", "--no-requeue"} <= {*options}
    assert [job.name.startswith("ty-doctor-") for job in slurm.jobs()] == [True]


def test_a_job_that_does_not_start_is_cancelled(slurm: Slurm, checked: Checked, approved: Approved) -> None:
    slurm.hold()
    found = checked()
    assert found["probe"] == (Status.WARNING, approved("probe"))
    assert [job.state for job in slurm.jobs()] == ["CANCELLED"]


def test_a_refused_job_says_why(slurm: Slurm, checked: Checked) -> None:
    slurm.fault("sbatch", f"fails {INVALID}")
    status, said = checked()["probe"]
    assert (status, "Invalid account or account/partition" in said) == (Status.FAILED, True)


@pytest.mark.thorough
def test_a_job_that_was_accepted_without_an_answer_is_followed(
    slurm: Slurm, checked: Checked, approved: Approved
) -> None:
    slurm.fault("sbatch", "loses")
    assert checked()["probe"] == (Status.OK, approved("probe", nodename=os.uname().nodename))


def test_a_job_that_was_lost_is_told_with_what_slurm_said(slurm: Slurm, checked: Checked) -> None:
    slurm.fault("sbatch", "loses")
    slurm.fault("squeue", "empty")
    slurm.hold()
    status, said = checked(patience=replace(QUICK, unlisted_s=1.0))["probe"]
    assert (status, "Socket timed out" in said) == (Status.FAILED, True)
    assert [job.state for job in slurm.jobs()] == ["CANCELLED"]


@pytest.mark.thorough
def test_a_slurm_that_lists_nothing_does_not_hide_what_the_nodes_tell(slurm: Slurm, checked: Checked) -> None:
    slurm.fault("squeue", "fails Unable to contact slurm controller")
    assert checked()["probe"][0] is Status.OK


def test_a_partition_that_slurm_does_not_describe_gets_no_job(
    slurm: Slurm, checked: Checked, approved: Approved
) -> None:
    slurm.fault("scontrol", "fails Partition main not found")
    ((check, (status, said)),) = checked().items()
    assert (check, status) == ("slurm", Status.FAILED) and said == approved("said")
    assert slurm.submissions() == []


def test_a_setting_that_no_pool_can_have_is_told_before_a_job_is_submitted(slurm: Slurm, checked: Checked) -> None:
    ((check, (status, said)),) = checked(isolation="strict").items()
    assert (check, status) == ("settings", Status.FAILED) and "TORCHYARD_ISOLATION" in said
    assert slurm.submissions() == []
