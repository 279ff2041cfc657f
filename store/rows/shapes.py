"""Shapes: digests of owner and requested resources. Jobs of one shape and priority wait for the same thing."""

import hashlib
import json
from typing import Any


def shape_of(owner: str, resources: dict[str, Any]) -> str:
    """Returns the shape of jobs of `owner` that request `resources` (as in a stored spec)."""
    written = json.dumps([owner, resources], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(written.encode(), digest_size=16).hexdigest()
