"""What the engine makes of a Slurm that loses messages, refuses, forgets, requeues, or is used by others."""

from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import timedelta
import os
from pathlib import Path
import subprocess

import pytest

from tests.approved import Approved
from tests.worker.attempt import wait_for
from tests.worker.engines.slurm.engines import SlurmEngineFixture
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.errors import ConfigError
from torchyard.contract.states import EndReason
from torchyard.host.untrusted import read_untrusted
from worker.engines.base import Absent, Ended, Handle, NotStartedYet, Observation, Running, Unknown, Waiting
from worker.engines.slurm.records import ClusterFiles
from worker.host.attempt_key import AttemptKey

GRACE = timedelta(seconds=20)


@pytest.fixture
def found(tmp_path: Path) -> Generator[SlurmEngineFixture]:
    fixture = SlurmEngineFixture(tmp_path)
    yield fixture
    fixture.clean_up()


def observed(found: SlurmEngineFixture, handle: Handle, until: Callable[[Observation], bool]) -> Observation:
    seen: list[Observation] = []

    def holds() -> bool:
        seen.append(found.engine.poll(handle))
        return until(seen[-1])

    wait_for(holds, "an observation")
    return seen[-1]


def report_of(found: SlurmEngineFixture, handle: Handle) -> ExitReport:
    ended = observed(found, handle, lambda seen: isinstance(seen, Ended))
    assert isinstance(ended, Ended)
    return ended.report


def queued(found: SlurmEngineFixture, handle: Handle) -> None:
    observed(found, handle, lambda seen: isinstance(seen, Waiting) and seen.queued)


def test_a_job_that_waits_in_slurm_is_cancelled_there_when_it_is_stopped(found: SlurmEngineFixture) -> None:
    found.slurm.hold()
    handle = found.engine.start(found.plan("waits"))
    waiting = observed(found, handle, lambda seen: isinstance(seen, Waiting) and seen.queued)
    assert waiting == Waiting("Resources", queued=True)
    found.engine.request_stop(handle, EndReason.PAUSED, GRACE)
    assert report_of(found, handle).reason is EndReason.PAUSED
    assert [job.state for job in found.slurm.jobs()] == ["CANCELLED"]


@pytest.mark.thorough
def test_a_job_that_others_cancel_while_it_waits_goes_back_to_the_queue(found: SlurmEngineFixture) -> None:
    found.slurm.hold()
    handle = found.engine.start(found.plan("waits"))
    queued(found, handle)
    subprocess.run(["scancel", f"--name={handle.stored['name']}"], env=found.slurm.environ(), check=True)
    assert report_of(found, handle).reason is EndReason.PREEMPTED


@pytest.mark.thorough
def test_a_job_that_others_cancel_while_it_runs_goes_back_to_the_queue(found: SlurmEngineFixture) -> None:
    handle = found.engine.start(found.plan("waits"))
    found.wait_for_ranks(handle)
    subprocess.run(["scancel", f"--name={handle.stored['name']}"], env=found.slurm.environ(), check=True)
    assert report_of(found, handle).reason is EndReason.PREEMPTED
    wait_for(lambda: found.has_ended(handle), "the end of all processes")


def test_a_submission_whose_answer_was_lost_is_found_by_its_name(found: SlurmEngineFixture) -> None:
    found.slurm.hold()
    found.slurm.fault("sbatch", "loses")
    handle = found.engine.start(found.plan("waits"))
    assert handle.stored["submitted"] is False
    assert handle.note is not None
    assert "timed out" in handle.note
    queued(found, handle)
    assert len(found.slurm.submissions()) == 1
    assert found.engine.kill(handle) is None
    assert [job.state for job in found.slurm.jobs()] == ["CANCELLED"]


@pytest.mark.thorough
def test_a_submission_that_never_arrived_is_absent_and_can_be_made_again(found: SlurmEngineFixture) -> None:
    found.slurm.fault("sbatch", "fails Socket timed out on send/recv operation")
    plan = found.plan("completes")
    handle = found.engine.start(plan)
    assert observed(found, handle, lambda seen: isinstance(seen, Absent | Ended)) == Absent()
    found.slurm.fault("sbatch", "")
    assert report_of(found, found.engine.start(plan)).reason is EndReason.COMPLETED


@pytest.mark.thorough
def test_two_jobs_of_one_attempt_start_it_once(found: SlurmEngineFixture) -> None:
    """A submission is believed lost and made again, and both have arrived."""
    found.slurm.hold()
    found.slurm.fault("sbatch", "loses")
    plan = found.plan("completes")
    handle = found.engine.start(plan)
    found.slurm.fault("sbatch", "")
    found.slurm.fault("squeue", "empty")
    observed(found, handle, lambda seen: isinstance(seen, Absent))
    found.engine.start(plan)
    assert len({job.name for job in found.slurm.jobs()}) == 1
    assert len(found.slurm.jobs()) == 2
    found.slurm.fault("squeue", "")
    found.slurm.hold(held=False)
    assert report_of(found, handle).reason is EndReason.COMPLETED
    wait_for(lambda: {job.state for job in found.slurm.jobs()} == {"COMPLETED"}, "the end of both jobs")
    assert "has ended" in ClusterFiles(found.run(handle.key)).log.read_text()


def test_slurm_that_takes_no_job_now_has_started_nothing(found: SlurmEngineFixture) -> None:
    found.slurm.fault("sbatch", "fails Unable to contact slurm controller (connect failure)")
    with pytest.raises(NotStartedYet, match="Unable to contact"):
        found.engine.start(found.plan("waits"))
    found.slurm.fault("squeue", "fails Unable to contact slurm controller (connect failure)")
    with pytest.raises(NotStartedYet, match="does not answer"):
        found.engine.start(found.plan("waits"))


def test_what_slurm_refuses_is_an_error_of_the_job_in_slurms_words(found: SlurmEngineFixture) -> None:
    found.slurm.fault("sbatch", "fails Batch job submission failed: Invalid account or account/partition combination")
    with pytest.raises(ConfigError, match="Invalid account"):
        found.engine.start(found.plan("waits"))


@pytest.mark.thorough
def test_an_attempt_that_slurm_has_forgotten_runs_as_long_as_its_heart_beats(found: SlurmEngineFixture) -> None:
    handle = found.engine.start(found.plan("waits"))
    found.wait_for_ranks(handle)
    jobs = found.slurm.jobs()
    found.slurm.forget()
    for command in ("squeue", "scancel"):
        found.slurm.fault(command, "empty")
    assert isinstance(observed(found, handle, lambda seen: found.engine.runs(handle.key)), Running)
    found.engine.request_stop(handle, EndReason.CANCELLED, GRACE)  # no signal reaches it: it looks by itself
    assert report_of(found, handle).reason is EndReason.CANCELLED
    found.slurm.save(jobs[0])


def test_a_job_that_slurm_had_and_lost_before_it_started_has_ended(found: SlurmEngineFixture) -> None:
    found.slurm.hold()
    handle = found.engine.start(found.plan("waits"))
    queued(found, handle)
    found.slurm.forget()
    assert report_of(found, handle).reason is EndReason.WORKER_LOST


def test_slurm_that_answers_nothing_leaves_open_what_runs(found: SlurmEngineFixture) -> None:
    found.slurm.hold()
    handle = found.engine.start(found.plan("waits"))
    later = found.later_engine()
    found.slurm.fault("squeue", "fails Unable to contact slurm controller (connect failure)")
    later.adopt(handle)
    wait_for(lambda: isinstance(later.poll(handle), Unknown), "an engine that cannot tell")
    assert later.runs(handle.key)


@pytest.mark.thorough
def test_a_job_that_slurm_requeues_starts_nothing_again(found: SlurmEngineFixture, approved: Approved) -> None:
    handle = found.engine.start(found.plan("waits"))
    found.wait_for_ranks(handle)
    found.kill_supervisor(handle)
    wait_for(lambda: found.has_ended(handle), "the end of all processes")
    found.slurm.hold()
    found.slurm.change(1, lambda job: replace(job, state="PENDING", nodes=""))
    report = report_of(found, handle)
    assert (report.reason, "requeued" in report.message) == (EndReason.PREEMPTED, True)
    found.slurm.hold(held=False)
    wait_for(lambda: found.slurm.jobs()[0].state == "COMPLETED", "the job that starts nothing")
    assert ClusterFiles(found.run(handle.key)).log.read_text() == approved("log")


def test_jobs_of_other_services_and_pools_are_left_alone(found: SlurmEngineFixture) -> None:
    found.slurm.hold()
    handle = found.engine.start(found.plan("waits"))
    queued(found, handle)
    other = found.slurm.jobs()[0]
    names = ["train", "ty-doctor-0123456789abcdef", other.name.replace(other.name[3:15], "f" * 12)]
    for number, name in enumerate(names, start=10):
        found.slurm.save(replace(other, id=number, name=name))
    wait_for(lambda: found.engine.kill_others(set()) or found.slurm.jobs()[0].state == "CANCELLED", "the cancellation")
    assert [job.state for job in found.slurm.jobs()[1:]] == ["PENDING"] * 3


def test_a_job_of_an_earlier_claim_of_the_same_attempt_is_cancelled(found: SlurmEngineFixture) -> None:
    found.slurm.hold()
    plan = found.plan("waits")
    earlier = found.engine.start(plan)
    queued(found, earlier)
    handle = found.engine.start(replace(plan, claimed_at=plan.claimed_at + 1))
    queued(found, handle)
    wait_for(
        lambda: found.engine.kill_others({plan.key}) or found.slurm.jobs()[0].state == "CANCELLED", "the cancellation"
    )
    assert found.slurm.jobs()[1].state == "PENDING"


def test_a_plan_that_was_changed_on_the_disk_gets_no_secret(found: SlurmEngineFixture) -> None:
    found.slurm.hold()
    handle = found.engine.start(replace(found.plan("completes"), secrets={"TOKEN": "a-secret-value"}))
    plan = ClusterFiles(found.run(handle.key)).plan
    name = str(handle.stored["name"])
    plan.write_text(plan.read_text().replace(name, name[:-1] + "9"))
    found.slurm.hold(held=False)
    report = report_of(found, handle)
    assert (report.reason, "cannot be decrypted" in report.message) == (EndReason.CONFIG_ERROR, True)


@pytest.mark.thorough
def test_a_node_of_another_version_starts_nothing(found: SlurmEngineFixture, approved: Approved) -> None:
    found.slurm.hold()
    handle = found.engine.start(found.plan("completes"))
    plan = ClusterFiles(found.run(handle.key)).plan
    plan.write_text(plan.read_text().replace('"version":"', '"version":"9.'))
    found.slurm.hold(held=False)
    report = report_of(found, handle)
    assert report.reason is EndReason.CONFIG_ERROR
    assert "n1" in report.message
    assert report.message == approved("message")
    assert not any(found.run(handle.key).ranks.iterdir())


def test_an_attempt_without_nodes_or_with_a_warm_start_is_refused(found: SlurmEngineFixture) -> None:
    with pytest.raises(ConfigError, match="without nodes"):
        found.engine.start(replace(found.plan("waits"), cluster=None, devices=("cpu-0",)))
    with pytest.raises(ConfigError, match="warm"):
        found.engine.start(replace(found.plan("waits"), launcher="warm"))


@pytest.mark.thorough
def test_a_coordinator_that_is_gone_takes_its_ranks_along(found: SlurmEngineFixture) -> None:
    handle = found.engine.start(found.plan("ignores SIGTERM"))
    found.wait_for_ranks(handle)
    found.kill_supervisor(handle)
    wait_for(lambda: found.has_ended(handle), "the end of all processes")
    report = report_of(found, handle)
    assert (report.reason, "without a report" in report.message) == (EndReason.WORKER_LOST, True)


@pytest.mark.thorough
def test_the_stacks_of_all_ranks_are_asked_through_the_coordinator(found: SlurmEngineFixture) -> None:
    handle = found.engine.start(found.plan("waits"))
    found.wait_for_ranks(handle)
    observed(found, handle, lambda seen: isinstance(seen, Running))
    read = found.engine.request_stacks(handle)
    wait_for(lambda: all("waits.py" in (stacks.text or "") for stacks in read()), "the stacks")
    assert found.engine.kill(handle) is None


@pytest.mark.thorough
def test_a_folder_of_another_claim_is_not_taken_for_this_one(found: SlurmEngineFixture) -> None:
    plan = found.plan("completes")
    handle = found.engine.start(plan)
    assert report_of(found, handle).reason is EndReason.COMPLETED
    engine = found.later_engine()
    assert engine.find(plan.key, world_size=2, claimed_at=plan.claimed_at + 1) is None
    assert engine.find(AttemptKey("job_strange name", 1), world_size=2, claimed_at=1) is None


@pytest.mark.thorough
def test_the_report_of_an_attempt_is_written_by_its_coordinator_alone(found: SlurmEngineFixture) -> None:
    handle = found.engine.start(found.plan("fails"))
    run = found.run(handle.key)
    report = report_of(found, handle)
    assert read_untrusted(run.exit, ExitReport) == report
    assert read_untrusted(run.of_node(0).exit, ExitReport) == report
    assert not os.path.lexists(run.supervisor)
