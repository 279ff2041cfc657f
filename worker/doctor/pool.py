"""Checks the pool that a worker serves: whether Slurm answers, and by a job of two nodes, what keeps attempts away."""

from collections.abc import Iterator
import os
from pathlib import Path
import secrets
import sys
import tempfile

from torchyard.contract.cluster.devices import PoolReport
from torchyard.contract.errors import ConfigError
from worker import pools
from worker.doctor.disk import nearest
from worker.doctor.findings import Finding, failed, ok, warning
from worker.doctor.nodes import Expected, judge
from worker.doctor.probe.facts import Outcome, ProbeFolder, ProbeRequest
from worker.doctor.probe.job import PATIENCE, Patience, run_probe
from worker.doctor.probe.node import own_versions
from worker.engines.slurm.commands import Commands, NoAnswer
from worker.engines.slurm.pool import PoolSettings, read_pool
from worker.settings import Settings

_NODES = 2


def check_pool(settings: Settings, partition: str, *, patience: Patience = PATIENCE) -> Iterator[Finding]:
    """Yields what is wrong with the partition and two of its nodes. Leaves nothing behind."""
    commands = Commands()
    try:
        pools.check(settings)
        report = read_pool(commands, PoolSettings(partition=partition, cpu_slots=settings.cpu_slots))
    except NoAnswer as error:
        advice = "install Slurm's client commands and its configuration on this host, and check TORCHYARD_POOL"
        yield failed("slurm", str(error), advice)
        return
    except ConfigError as error:
        yield failed("settings", error.message, "change the variable")
        return
    yield _partition(report)
    if not report.nodes.count:
        return
    nodes = min(_NODES, report.nodes.count)
    expected = _expected(settings, nodes=nodes)
    yield from judge(_probe(settings, commands, expected, partition=partition, patience=patience), expected)


def _partition(report: PoolReport) -> Finding:
    nodes = report.nodes
    noun = "GPUs" if report.kind == "cuda" else "CPU slots"
    fact = f"partition {report.partition} is {report.state}: {nodes.count} nodes with {nodes.devices} {noun} each"
    if report.obstacle is not None:
        return warning("slurm", f"{fact}, and {report.obstacle}", "ask the cluster's operator: scontrol show partition")
    return ok("slurm", fact)


def _expected(settings: Settings, *, nodes: int) -> Expected:
    folders = (nearest(settings.home), nearest(settings.blobs), *settings.allowed)
    return Expected(
        nodes=nodes,
        uid=os.geteuid(),
        versions=own_versions(),
        folders=sorted({str(folder) for folder in folders}),
    )


def _probe(
    settings: Settings, commands: Commands, expected: Expected, *, partition: str, patience: Patience
) -> Outcome:
    request = ProbeRequest(
        token=secrets.token_hex(32),
        nodes=expected.nodes,
        interface=settings.interface,
        isolation=settings.isolation,
        folders=[*expected.folders],
        wait_s=patience.meet_s,
    )
    options = [
        f"--partition={partition}",
        *(f"--account={account}" for account in settings.slurm_accounts[:1]),
        *(f"--qos={qos}" for qos in settings.slurm_qos[:1]),
    ]
    with tempfile.TemporaryDirectory(prefix=".torchyard-doctor-", dir=nearest(settings.home)) as root:
        folder = ProbeFolder(Path(root))
        return run_probe(folder, request, commands, options=options, python=sys.executable, patience=patience)
