"""How both ends of a reach and the service show that they know its secret, and never send it (RFC 2104).

Each side has a nonce of its own, so that no proof is good twice, and is named in its proof, so that none can be sent
back to who made it. What is compared takes the same time whether it is right or not.
"""

import hashlib
import hmac
import re
import secrets
from typing import Literal

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
