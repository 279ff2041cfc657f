"""The code and packages of jobs."""

from typing import Any

from sqlalchemy.orm import Session

from store.attempts import packages
from store.bundles import bundles
from store.bundles.facts import BundleFacts
from store.output.facts import JobPackagesFacts
from store.tables import Job
from store.team import access
from store.team.callers import Caller
from torchyard.contract.bundles.names import digest_in


def find_bundle(session: Session, job_id: str, *, caller: Caller) -> BundleFacts | str:
    """Returns the bundle of the job's code, or why there is none that can be read. Raises NotFound.

    Whether its file is still there is not looked at.
    """
    owner, spec = access.readable_job(session, job_id, caller, Job.owner, Job.spec)
    url = _code_in(spec)
    if url is None:
        return "The job runs a built-in recipe: it has no code of its own."
    sha256 = digest_in(url)
    if sha256 is None:
        return f"The code is on the workers, in {url}. It is not stored and cannot be shown."
    # The owner's own row, as every bundle is read: what a job names without having it stays hidden.
    return bundles.find(session, owner, sha256) or say_deleted(sha256)


def say_deleted(sha256: str) -> str:
    """Returns why a bundle cannot be read whose row, or whose file, is gone."""
    return f"The bundle {sha256} of the code was deleted."


def find_packages(session: Session, job_id: str, *, caller: Caller) -> JobPackagesFacts | None:
    """Returns the packages that the job had, or None before its first step. Raises NotFound."""
    access.readable_job(session, job_id, caller)
    return packages.find(session, job_id)


def _code_in(spec: Any) -> str | None:
    config = spec.get("config")
    code = config.get("code") if isinstance(config, dict) else None
    return code if isinstance(code, str) else None
