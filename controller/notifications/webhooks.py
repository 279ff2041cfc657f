"""Webhooks in the form of https://www.standardwebhooks.com: JSON with an id, a time stamp and a signature."""

import base64
from collections.abc import Mapping
import hashlib
import hmac
import json
from typing import Any

_PREFIX = "whsec_"


def body_of(body: Mapping[str, Any]) -> bytes:
    """Returns the bytes of JSON that are signed and sent."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def headers(message_id: str, body: bytes, *, secret: str | None, now_s: int) -> dict[str, str]:
    """Returns the headers of a webhook. `secret`: `whsec_` and base64. Without one, nothing is signed."""
    found = {"Content-Type": "application/json", "webhook-id": message_id, "webhook-timestamp": str(now_s)}
    if secret is not None:
        found["webhook-signature"] = f"v1,{_signature(secret, message_id, now_s, body)}"
    return found


def _signature(secret: str, message_id: str, now_s: int, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    signed = hmac.new(key, b"%s.%d.%s" % (message_id.encode(), now_s, body), hashlib.sha256)
    return base64.b64encode(signed.digest()).decode()
