"""Object ids: a prefix for the type and a UUIDv7 (RFC 9562), so that ids sort by their creation time."""

import re
from typing import Literal

import uuid_utils

Prefix = Literal["job", "ckpt", "wrk", "tok", "art", "swp", "sch", "ntf", "msg", "med", "rch"]

_ID = re.compile(r"(job|ckpt|wrk|tok|art|swp|sch|ntf|msg|med|rch)_[0-9a-f]{32}")


def new_id(prefix: Prefix) -> str:
    """Returns a new id, which is greater than every earlier one of this process."""
    return f"{prefix}_{uuid_utils.uuid7().hex}"


def is_id(text: str, prefix: Prefix) -> bool:
    """Returns whether `text` is an id of this type."""
    return _ID.fullmatch(text) is not None and text.startswith(f"{prefix}_")
