"""Ends what a test has started."""

from datetime import timedelta

from torchyard.contract.records import ProcessIdentity
from worker.host import process


def kill_attempt(job_id: str, attempt: int) -> list[ProcessIdentity]:
    """Kills every process of an attempt, its supervisor included. Returns what is alive after half a minute."""
    return process.kill_all(lambda: process.find(job_id, attempt), timeout=timedelta(seconds=30))
