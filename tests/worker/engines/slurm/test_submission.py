"""The options of sbatch, and what Slurm's commands answer."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.approved import Approved
from tests.worker.engines.slurm.engines import SlurmEngineFixture
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.cluster.devices import PoolNodes, PoolReport
from torchyard.contract.errors import ConfigError
from worker.engines.base import AttemptPlan, ClusterRequest
from worker.engines.slurm.commands import Commands, NoAnswer, Refused, Submission
from worker.engines.slurm.submission import options_of

POOL = PoolReport(partition="gpu", kind="cuda", nodes=PoolNodes(count=4, devices=8, cpus=64), max_time_s=7200)
ASKED = ClusterRequest(nodes=2, devices_per_node=4, kind="cuda")


@pytest.fixture
def plan(tmp_path: Path) -> AttemptPlan:
    found = SlurmEngineFixture(tmp_path).plan("completes")
    return replace(found, cluster=ASKED, time_limit=timedelta(minutes=30), stop_grace=timedelta(minutes=2))


def options(plan: AttemptPlan, *, root: Path = Path("/data/runs/job_x/1"), **asked: Any) -> Sequence[str]:
    wanted = replace(plan, cluster=replace(ASKED, **asked))
    return options_of(wanted, name="ty-x", run=RunDir(root), pool=POOL)


def test_a_job_gets_its_nodes_its_devices_and_their_share_of_the_cpus(plan: AttemptPlan) -> None:
    found = options(plan)
    assert {"--nodes=2", "--gres=gpu:4", "--cpus-per-task=32", "--ntasks-per-node=1", "--no-requeue"} <= {*found}
    assert "--gres=gpu:a100:4" in options(plan, gpu="a100")
    cpus = options_of(replace(plan, cpus=2.5, memory_bytes=3 << 30), name="x", run=RunDir(Path("/d")), pool=POOL)
    assert {"--cpus-per-task=3", "--mem=3072M"} <= {*cpus}
    assert not any(option.startswith("--gres") for option in options(plan, kind="cpu"))


def test_slurm_warns_early_enough_for_the_grace_and_ends_late_enough_for_the_limit(plan: AttemptPlan) -> None:
    found = options(plan)
    assert "--signal=B:TERM@180" in found
    assert "--time=39" in found
    long = replace(plan, time_limit=timedelta(days=2))
    assert "--time=120" in options_of(long, name="x", run=RunDir(Path("/d")), pool=POOL)


def test_what_the_job_may_choose_is_passed_on(plan: AttemptPlan) -> None:
    found = options(plan, account="team-a", qos="low", reservation="r_1", constraint="[ib1|ib2]&a100*2")
    assert {"--account=team-a", "--qos=low", "--reservation=r_1", "--constraint=[ib1|ib2]&a100*2"} <= {*found}


@pytest.mark.parametrize("field", ["account", "qos", "reservation", "constraint", "gpu"])
@pytest.mark.parametrize(
    "value", ["", "-x", "--wrap=id", "a b", "a\nb", "a;id", "$(id)", "a,b=c", "x" * 1000, "é", "a\0"]
)
def test_what_is_no_name_is_refused(plan: AttemptPlan, field: str, value: str) -> None:
    if field == "gpu" and not value:
        return  # any GPU
    wrong: dict[str, Any] = {field: value}
    with pytest.raises(ConfigError):
        options(plan, **wrong)


@pytest.mark.parametrize("name", ["50%", "a\\b", "a\nb"])
def test_a_path_that_slurm_would_change_is_refused(plan: AttemptPlan, name: str, approved: Approved) -> None:
    with pytest.raises(ConfigError) as raised:
        options(plan, root=Path("/data") / name)
    assert str(raised.value) == approved.of_row("message")


class Answering:
    """Has the commands of Slurm say what the test says."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def commands(self, script: str) -> Commands:
        for name in ("sbatch", "squeue", "scancel", "scontrol", "sinfo"):
            command = self._folder / name
            command.write_text(f"#!/bin/sh\n{script}\n")
            command.chmod(0o755)
        return Commands({"PATH": f"{self._folder}:/usr/bin:/bin", "SECRET": "of the daemon", "HOME": "/root"})


@pytest.fixture
def answering(tmp_path: Path) -> Answering:
    (tmp_path / "bin").mkdir()
    return Answering(tmp_path / "bin")


SUBMISSION = Submission(options=["--job-name=x"], variables={"SLURM_TORCHYARD_KEY": "the key"})


def says(text: str) -> str:
    return f"echo 'sbatch: error: Batch job submission failed: {text}' >&2; exit 1"


@pytest.mark.parametrize(
    "text",
    [
        "Invalid account or account/partition combination specified",
        "Invalid partition name specified",
        "Invalid feature specification",
        "Invalid qos specification",
        "Requested reservation is invalid",
        "Requested node configuration is not available",
        "Requested time limit is invalid (missing or exceeds some limit)",
        "Access/permission denied",
        "More processors requested than permitted",
    ],
)
def test_what_slurm_refuses_for_ever_is_refused(answering: Answering, text: str, approved: Approved) -> None:
    with pytest.raises(Refused) as refused:
        answering.commands(says(text)).submit(SUBMISSION)
    assert not refused.value.passes
    assert str(refused.value) == approved("message", text=text)


@pytest.mark.parametrize(
    "text",
    [
        "Unable to contact slurm controller (connect failure)",
        "Slurm temporarily unable to accept job, sleeping and retrying",
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)".replace("'", ""),
    ],
)
def test_what_slurm_refuses_for_now_passes(answering: Answering, text: str) -> None:
    with pytest.raises(Refused) as refused:
        answering.commands(says(text)).submit(SUBMISSION)
    assert refused.value.passes


@pytest.mark.parametrize(
    "script",
    [
        says("Socket timed out on send/recv operation"),
        says("Zero Bytes were transmitted or received"),
        says("Unexpected message received"),
        says("Words of a later version"),
        "exit 1",
        "kill -KILL $$",
        "exit 0",
        "echo what is this",
    ],
)
def test_every_other_answer_leaves_open_whether_there_is_a_job(answering: Answering, script: str) -> None:
    with pytest.raises(NoAnswer):
        answering.commands(script).submit(SUBMISSION)


def test_a_missing_command_has_submitted_nothing(tmp_path: Path, approved: Approved) -> None:
    commands = Commands({"PATH": str(tmp_path)})
    with pytest.raises(Refused) as refused:
        commands.submit(SUBMISSION)
    assert str(refused.value) == approved("message")
    assert refused.value.passes
    with pytest.raises(NoAnswer, match="squeue"):
        commands.list_jobs()


def test_sbatch_has_no_variable_of_the_daemon_and_the_key_is_not_among_its_own(answering: Answering) -> None:
    seen = "/proc/self/environ"
    commands = answering.commands(f"tr '\\0' '\\n' < {seen} > $(dirname $0)/seen; echo 7")
    commands.submit(SUBMISSION)
    found = (Path(answering.commands("exit 0")._env["PATH"].split(":")[0]) / "seen").read_text()  # pyright: ignore[reportPrivateUsage]
    assert "the key" not in found
    assert "of the daemon" not in found


def test_a_name_of_another_form_in_an_answer_shows_no_control_characters(answering: Answering) -> None:
    with pytest.raises(NoAnswer) as failed:
        answering.commands("printf 'a\\033[31mb\\n%0200000d' 0 >&2; exit 1").list_jobs()
    assert str(failed.value).isprintable()
    assert len(str(failed.value)) < 600
