"""Where the kernel says that it has killed a process of a Slurm job for its memory."""

from pathlib import Path

import pytest

from worker.engines.slurm import oom


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all control groups of this host."""
    monkeypatch.setattr(oom, "_CGROUPS", tmp_path)
    return tmp_path


def kills(line: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(oom, "_own_groups", lambda: [line, "1:cpu:/slurm/job_7", "garbage:memory:/"])
    return oom.kills()


def write(groups: Path, name: str, text: str) -> None:
    (groups / name).parent.mkdir(parents=True, exist_ok=True)
    (groups / name).write_text(text)


def test_version_2_counts_what_is_below_the_job(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(groups, "system.slice/slurmstepd.scope/job_7/memory.events", "low 0\noom 1\noom_kill 2\n")
    write(groups, "system.slice/slurmstepd.scope/job_7/step_0/memory.events", "oom_kill 2\n")
    assert kills("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", monkeypatch) == 2


def test_version_1_counts_each_group_by_itself(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(groups, "memory/slurm/uid_0/job_7/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    write(groups, "memory/slurm/uid_0/job_7/step_0/task_0/memory.oom_control", "oom_kill 3\n")
    write(groups, "memory/slurm/uid_0/memory.oom_control", "oom_kill 99\n")
    assert kills("4:memory:/slurm/uid_0/job_7/step_0/task_0", monkeypatch) == 3


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("line", ["0::/", "4:memory:/user.slice", "0::/job_7/x", "4:memory:/../../job_7"])
def test_without_a_job_or_its_files_nothing_was_killed(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    assert kills(line, monkeypatch) == 0
