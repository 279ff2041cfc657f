"""How both ends of a reach and the service show that they know its secret, and never send it (RFC 2104).

Each side has a nonce of its own, so that no proof is good twice, and is named in its proof, so that none can be sent
back to who made it. What is compared takes the same time whether it is right or not.
"""

import hashlib
import hmac
import json
import re
import secrets
from typing import Any, Literal

Side = Literal["client", "worker", "service"]

SECRET_BYTES = 32
_CONTEXT = b"torchyard-reach-1"
_HEX = re.compile(r"[0-9a-f]{64}")


def new_nonce() -> str:
    return secrets.token_hex(32)


def prove(secret: bytes, *, side: Side, reach: str, meeting: int, service_nonce: str, end_nonce: str) -> str:
    """Returns the proof of one side, of 64 hexadecimal digits. `end_nonce`: that of the client or worker."""
    proof = hmac.new(secret, digestmod=hashlib.sha256)
    for part in (side, reach, str(meeting), service_nonce, end_nonce):
        content = part.encode()
        proof.update(len(content).to_bytes(4, "big") + content)
    proof.update(_CONTEXT)
    return proof.hexdigest()


def proves(
    proof: str, secret: bytes, *, side: Side, reach: str, meeting: int, service_nonce: str, end_nonce: str
) -> bool:
    """Returns whether `proof` is the one that `prove` returns. Both nonces must be of the form of `new_nonce`."""
    right = prove(secret, side=side, reach=reach, meeting=meeting, service_nonce=service_nonce, end_nonce=end_nonce)
    forms = all(_HEX.fullmatch(part) for part in (proof, service_nonce, end_nonce))
    return forms and hmac.compare_digest(right, proof)


class Handshake:
    """What a client or worker says at a meeting, and what it asks of the service. No I/O.

    The service speaks first. `secret`: in hex.
    """

    def __init__(self, secret: str, *, side: Literal["client", "worker"], reach: str, meeting: int) -> None:
        self._secret = bytes.fromhex(secret)
        self._side: Side = side
        self._reach, self._meeting = reach, meeting
        self._nonces: dict[str, str] = {}

    def answer(self, message: str | bytes) -> str:
        """Returns the answer to the service's first message: the nonce and proof of this end. Raises ValueError."""
        self._nonces = {"service_nonce": _text_in(message, "nonce"), "end_nonce": new_nonce()}
        proof = prove(self._secret, side=self._side, reach=self._reach, meeting=self._meeting, **self._nonces)
        return json.dumps({"nonce": self._nonces["end_nonce"], "proof": proof})

    def check(self, message: str | bytes) -> None:
        """Raises ValueError unless the service's second message shows that it knows the secret."""
        proof = _text_in(message, "proof")
        if not proves(proof, self._secret, side="service", reach=self._reach, meeting=self._meeting, **self._nonces):
            raise ValueError("what answers there does not know the secret of this meeting")


def _text_in(message: str | bytes, key: str) -> str:
    try:
        found: Any = json.loads(message)
    except (ValueError, RecursionError):
        found = None
    value = found.get(key) if isinstance(found, dict) else None
    if not isinstance(value, str):
        raise ValueError(f"what answers there sent no {key}")
    return value
