"""What a job asks for, as a key: jobs of one shape and priority wait for the same, and the oldest of them speaks for
all."""

import hashlib
import json
from typing import Any


def shape_of(owner: str, resources: dict[str, Any]) -> str:
    """The key of the jobs of `owner` that ask for `resources`, as a stored spec has them."""
    written = json.dumps([owner, resources], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(written.encode(), digest_size=16).hexdigest()
