"""Object ids: a prefix that says what it is, and a UUIDv7, so that ids sort by the time they were made (RFC 9562)."""

import re
from typing import Literal

import uuid_utils

Prefix = Literal["job", "ckpt", "wrk"]

_ID = re.compile(r"(job|ckpt|wrk)_[0-9a-f]{32}")


def new_id(prefix: Prefix) -> str:
    """A fresh id, above every id that this process made before."""
    return f"{prefix}_{uuid_utils.uuid7().hex}"


def is_id(text: str, prefix: Prefix) -> bool:
    return _ID.fullmatch(text) is not None and text.startswith(f"{prefix}_")
