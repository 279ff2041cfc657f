"""Shapes: digests of what jobs wait for. A pass over the line reads the first job of each shape and priority."""

from collections.abc import Mapping
from datetime import timedelta
import hashlib
import json
from typing import Any

from pydantic import ValidationError

from scheduling.shapes import limit_class, looked
from store.db.database import in_us
from store.db.stored_spec import StoredSpec

VERSION = 2
"""Rises when a shape says more or less of a job: those of an older version are in groups of their own."""
_OWNER_DIGITS = 12


def shape_of(owner: str, spec: Mapping[str, Any], *, needs: Mapping[str, Any] | None = None, ran_us: int = 0) -> str:
    """Returns the shape of jobs of `owner` with this stored spec whose attempts ran for `ran_us` microseconds.

    `needs`: as `shape` has it.
    """
    preemptible, limit = _terms(spec)
    return shape(owner, spec["resources"], preemptible=preemptible, limit=limit, needs=needs, ran_us=ran_us)


def shape(
    owner: str,
    resources: Mapping[str, Any],
    *,
    preemptible: bool,
    limit: timedelta,
    needs: Mapping[str, Any] | None = None,
    ran_us: int = 0,
) -> str:
    """Returns the shape of jobs, which begins with what is equal for all of an owner.

    It has the owner, the resources, what `store.jobs.needs.needs_of` the spec is, whether others may displace the jobs,
    the class of what is left of their time limit, and whether they had their first look.
    """
    left = max(0, in_us(limit) - ran_us)
    parts = [VERSION, owner, resources, needs, preemptible, limit_class(left), looked(ran_us)]
    written = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    digest = hashlib.blake2b(written.encode(), digest_size=16).hexdigest()
    return hashlib.blake2b(owner.encode(), digest_size=16).hexdigest()[:_OWNER_DIGITS] + digest[_OWNER_DIGITS:]


def owner_of(shape: str) -> str:
    """Returns the part of a shape that is equal for all shapes of its owner, and for no other owner's."""
    return shape[:_OWNER_DIGITS]


def _terms(spec: Mapping[str, Any]) -> tuple[bool, timedelta]:
    try:
        # Not the whole spec: this is all that is needed.
        read = StoredSpec.model_validate({name: spec[name] for name in ("preemptible", "time_limit") if name in spec})
    except ValidationError:  # a newer program wrote it: only such a one starts the job
        read = StoredSpec()
    return read.preemptible, read.time_limit
