"""The lab is a real Slurm: nodes with addresses of their own, which die alone, and a controller that forgets."""

import os
from pathlib import Path
import signal
import subprocess
import sys

import psutil
import pytest

from tests.hosts.machine import wait_until
from tests.slurm import lab as lab_module
from tests.slurm.configuration import Profile
from tests.slurm.lab import SlurmLab

pytestmark = pytest.mark.slurm

PING = """
import os, socket, sys
if os.environ["SLURM_PROCID"] == "0":
    connection, sender = socket.create_server(("0.0.0.0", 5000)).accept()
    print("from", sender[0], connection.recv(5).decode())
else:
    while True:
        try:
            connection = socket.create_connection(("n1", 5000))
        except ConnectionRefusedError:
            continue
        break
    connection.sendall(b"hello")
"""
IN_LAB = """
import pathlib, sys, tests.slurm.lab
with tests.slurm.lab.SlurmLab(pathlib.Path(sys.argv[1]), nodes=1) as lab:
    print("up", flush=True)
    lab.run("srun", "sleep", "1000")
"""


@pytest.mark.parametrize("profile", ["linuxproc", "cgroup"])
def test_a_step_runs_on_two_nodes(lab_folder: Path, profile: Profile) -> None:
    with SlurmLab(lab_folder, nodes=2, profile=profile) as lab:
        assert set(lab.run("srun", "-N2", "hostname").stdout.split()) == {"n1", "n2"}


def test_tasks_reach_each_other_by_name_and_address(lab: SlurmLab) -> None:
    (lab.folder / "ping.py").write_text(PING)
    said = lab.run("srun", "-N2", "--ntasks-per-node=1", sys.executable, str(lab.folder / "ping.py")).stdout
    assert said.split() == ["from", lab.address.removesuffix(".1") + ".12", "hello"]


def test_a_cancelled_job_leaves_no_process(lab: SlurmLab) -> None:
    job = submitted(lab, "srun sleep 1000", "-N2")
    wait_until(lambda: programs(lab, 2, "sleep") == 1, "the step runs")
    lab.run("scancel", job)
    wait_until(lambda: state(lab, job) == "CANCELLED", "it is cancelled")
    wait_until(lambda: lab.node_state(2) == "idle", "n2 is idle")
    assert programs(lab, 1, "sleep") == programs(lab, 2, "sleep") == 0


def test_a_killed_node_is_down_and_its_job_fails(lab: SlurmLab) -> None:
    job = submitted(lab, "srun sleep 1000", "-N2", "--no-requeue")
    wait_until(lambda: programs(lab, 2, "sleep") == 1, "the step runs")
    lab.kill_node(2)
    wait_until(lambda: state(lab, job) == "NODE_FAIL", "the job fails")
    assert lab.node_state(2) == "down*"
    lab.start_node(2)
    lab.wait_for_node(2, "idle")


def test_a_killed_slurmd_leaves_its_steps(lab: SlurmLab) -> None:
    job = submitted(lab, "exec sleep 1000")
    wait_until(lambda: programs(lab, 1, "sleep") == 1, "the job runs")
    lab.kill_node(1, whole=False)
    assert programs(lab, 1, "slurmd") == 0
    assert programs(lab, 1, "sleep") == 1
    lab.start_node(1)
    lab.run("scancel", job)
    wait_until(lambda: programs(lab, 1, "sleep") == 0, "its new slurmd ends the job")


def test_a_cut_node_goes_on_until_it_is_mended(lab: SlurmLab) -> None:
    submitted(lab, "exec sleep 1000", "--nodelist=n2")
    wait_until(lambda: programs(lab, 2, "sleep") == 1, "the job runs")
    lab.cut_link(2)
    lab.wait_for_node(2, "down*")
    assert programs(lab, 2, "sleep") == 1
    lab.mend_link(2)
    wait_until(lambda: programs(lab, 2, "sleep") == 0, "Slurm ends what it had given up")
    lab.wait_for_node(2, "idle")


def test_a_controller_that_lost_its_state_gives_an_id_again(lab: SlurmLab) -> None:
    first = submitted(lab, "exec sleep 1000")
    lab.kill_controller(lose_state=True)
    lab.start_controller()
    assert lab.run("squeue", "--noheader", "--states=all").stdout == ""
    assert submitted(lab, "exec sleep 1000") == first


def test_two_jobs_of_one_name_run_one_after_the_other(lab: SlurmLab) -> None:
    options = ("--job-name=one", "--dependency=singleton")
    first = submitted(lab, "exec sleep 1000", *options)
    second = submitted(lab, "exec sleep 1000", *options)
    wait_until(lambda: state(lab, first) == "RUNNING", "the first runs")
    wait_until(lambda: "Reason=Dependency" in shown(lab, second), "the second waits for it")
    lab.run("scancel", first)
    wait_until(lambda: state(lab, second) == "RUNNING", "the second runs")


def test_of_the_environment_slurms_variables_alone_reach_a_job(lab: SlurmLab) -> None:
    environment = {"SLURM_TORCHYARD_KEY": "secret", "TORCHYARD_TOKEN": "other"}
    job = submitted(lab, "env", "--export=NIL", environment=environment)
    wait_until(lambda: state(lab, job) == "COMPLETED", "it ends")
    said = (lab.folder / f"{job}.out").read_text()
    assert "SLURM_TORCHYARD_KEY=secret" in said
    assert "other" not in said


def test_slurm_calls_a_step_complete_whose_process_ran_out_of_memory(lab_folder: Path) -> None:
    with SlurmLab(lab_folder, nodes=1, profile="cgroup") as lab:
        job = submitted(lab, f"srun {sys.executable} -c 'bytearray(400 << 20)'; echo code $?", "--mem=100M")
        wait_until(lambda: state(lab, job) == "COMPLETED", "it ends")
        said = (lab.folder / f"{job}.out").read_text()
        assert "Out Of Memory" in said
        assert "code 1" in said


def test_a_lower_partition_is_preempted(lab: SlurmLab) -> None:
    low = submitted(lab, "exec sleep 1000", "-N2", "--exclusive", "--partition=low")
    wait_until(lambda: state(lab, low) == "RUNNING", "it runs")
    submitted(lab, "true", "-N2", "--exclusive", "--partition=high")
    wait_until(lambda: state(lab, low) == "PREEMPTED", "it is preempted")


def test_two_labs_do_not_meet(lab: SlurmLab) -> None:
    with SlurmLab(lab.folder / "second", nodes=1) as second:
        assert lab.address != second.address
        assert lab.run("sinfo", "--noheader", "-p", "main", "-o", "%D").stdout.strip() == "2"
        assert second.run("sinfo", "--noheader", "-p", "main", "-o", "%D").stdout.strip() == "1"
    assert lab.run("srun", "hostname").stdout == "n1\n"


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_lab_that_is_interrupted(lab_folder: Path, signal_number: signal.Signals) -> None:
    argv = [sys.executable, "-c", IN_LAB, str(lab_folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal_number)
    wait_until(lambda: not using(lab_folder), "its processes are gone")
    with SlurmLab(lab_folder / "next", nodes=1):
        assert all(Path("/proc", owner).exists() for owner in owners_of_bridges())


def test_nothing_is_left_of_a_lab_that_does_not_start(lab_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: SlurmLab, number: int) -> None:
        raise ZeroDivisionError(number)

    monkeypatch.setattr(SlurmLab, "start_node", fails)
    with pytest.raises(ZeroDivisionError), SlurmLab(lab_folder, nodes=1, profile="cgroup"):
        pass
    assert not using(lab_folder)
    assert str(os.getpid()) not in owners_of_bridges()
    assert [path.name for path in lab_folder.iterdir() if path.is_dir()] == []


def test_missing_packages_are_named(lab_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> None:
        return None

    monkeypatch.setattr(lab_module.shutil, "which", none)
    with pytest.raises(pytest.skip.Exception, match="apt-get install iproute2 munge slurm-client slurmctld slurmd"):
        SlurmLab(lab_folder).__enter__()


def submitted(lab: SlurmLab, script: str, *options: str, environment: dict[str, str] | None = None) -> str:
    """Submits a shell's commands, and returns the job's id. Its output is `ID.out` in the lab's folder."""
    argv = ["sbatch", "--parsable", f"--output={lab.folder}/%j.out", *options, f"--wrap={script}"]
    return lab.run(*argv, environment=environment).stdout.strip()


def shown(lab: SlurmLab, job: str) -> str:
    return lab.run("scontrol", "show", "job", job, check=False).stdout


def state(lab: SlurmLab, job: str) -> str:
    return shown(lab, job).partition("JobState=")[2].partition(" ")[0]


def programs(lab: SlurmLab, node: int, name: str) -> int:
    return sum(process.name() == name for process in lab.processes(node))


def using(folder: Path) -> list[psutil.Process]:
    """Returns the processes, besides this one, whose command line names the folder."""
    return [process for process in psutil.process_iter() if str(folder) in _command_line(process)]


def owners_of_bridges() -> list[str]:
    """Returns the pids of the processes whose labs have a network."""
    bridges = [folder for folder in Path("/sys/class/net").glob("tylab*") if (folder / "bridge").exists()]
    return [(bridge / "ifalias").read_text().strip() for bridge in bridges]


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
