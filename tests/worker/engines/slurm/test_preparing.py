"""What a node refuses before anything starts there."""

from dataclasses import replace
from datetime import timedelta
import os
from pathlib import Path

import pytest

from tests.worker.test_devices import FakeNvml
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason
from torchyard.contract.wire.version import own_version
from worker.engines.slurm import sealing
from worker.engines.slurm.gathering import obstacle
from worker.engines.slurm.preparing import Preparation, devices_of
from worker.engines.slurm.records import ClusterFiles, ClusterPlan, NodeRules, SealedSecrets
from worker.sandbox import namespaces
from worker.sandbox.namespaces import Namespaces

KEY = bytes(32)


@pytest.mark.parametrize(("isolation", "refused"), [("require", True), ("auto", False)])
def test_a_node_where_jobs_reach_the_socket_of_munge_is_refused_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str, refused: bool
) -> None:
    monkeypatch.setattr(namespaces, "allowed", lambda: Namespaces(mounts=False, pids=False))
    facts = Preparation(_run(tmp_path), _plan(tmp_path, isolation), 0, key=KEY).facts("127.0.0.1")
    assert ("submits jobs to Slurm" in (facts.problem or "")) is refused


def test_a_disk_that_a_node_cannot_write_costs_the_job_one_attempt(tmp_path: Path) -> None:
    run, plan = _run(tmp_path), _plan(tmp_path, "auto")
    run.ctl.parent.mkdir()
    run.ctl.touch()
    report = obstacle(plan, [Preparation(run, plan, 0, key=KEY).facts("127.0.0.1")])
    assert report is not None
    assert (report.reason, report.may_retry) == (EndReason.WORKER_LOST, True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"SLURM_STEP_GPUS": "1,2", "CUDA_VISIBLE_DEVICES": "1,2"}, ["GPU-bbbb", "GPU-dddd"]),
        ({"SLURM_STEP_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0"}, ["GPU-cccc"]),
        ({"SLURM_STEP_GPUS": "7", "CUDA_VISIBLE_DEVICES": "0,1"}, ["GPU-aaaa", "GPU-bbbb"]),
        ({"SLURM_STEP_GPUS": "0:1g.10gb", "CUDA_VISIBLE_DEVICES": "GPU-dddd"}, ["GPU-dddd"]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, ["GPU-cccc"]),
    ],
)
def test_the_gpus_of_a_node_are_those_whose_files_slurm_names(
    tmp_path: Path, given: dict[str, str], expected: list[str]
) -> None:
    """The driver counts them by the PCI bus, and has numbered their files otherwise."""
    minors = {"GPU-aaaa": 3, "GPU-bbbb": 2, "GPU-cccc": 0, "GPU-dddd": 1}
    nvml = FakeNvml({uuid: [] for uuid in minors}, minors=minors)
    plan = replace(_plan(tmp_path, "auto"), kind="cuda", devices_per_node=2)
    assert [device.uuid for device in devices_of(plan, nvml=nvml, environ=given)] == expected


def test_with_constrained_devices_the_driver_shows_those_alone(tmp_path: Path) -> None:
    nvml = FakeNvml({"GPU-cccc": [], "GPU-dddd": []}, minors={"GPU-cccc": 5, "GPU-dddd": 4})
    plan = replace(_plan(tmp_path, "auto"), kind="cuda", devices_per_node=2)
    given = {"SLURM_STEP_GPUS": "4,5", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert [device.uuid for device in devices_of(plan, nvml=nvml, environ=given)] == ["GPU-cccc", "GPU-dddd"]


def _run(folder: Path) -> RunDir:
    run = RunDir(folder / "runs/job_1/1")
    run.create()
    sealed = sealing.seal({}, key=KEY, name="ty-1")
    ClusterFiles(run).secrets(sealing.start_of(KEY)).write_text(SealedSecrets(content=sealed).to_json())
    return run.of_node(0)


def _plan(folder: Path, isolation: str) -> ClusterPlan:
    rules = {"root": str(folder), "isolation": isolation}
    return ClusterPlan(
        name="ty-1",
        job_id="job_1",
        attempt=1,
        claimed_at=1,
        version=own_version(),
        uid=os.getuid(),
        nodes=1,
        devices_per_node=1,
        kind="cpu",
        program=["train.py"],
        owner="ada",
        env={},
        job_env={},
        environ={},
        cwd=str(folder),
        time_limit=timedelta(hours=1),
        stall_timeout=timedelta(hours=1),
        stop_grace=timedelta(seconds=30),
        reports=False,
        rules=NodeRules.from_dict(rules),
    )
