"""Encrypts the secrets of one attempt with a key that no file has, and derives the key of its nodes' messages."""

import base64
from collections.abc import Mapping
import hashlib
import hmac
import json
import os
import secrets as random

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from torchyard.contract.errors import ConfigError

_KEY_BYTES, _NONCE_BYTES = 32, 12


def new_key() -> bytes:
    """Returns a key for one start of one attempt."""
    return random.token_bytes(_KEY_BYTES)


def seal(values: Mapping[str, str], *, key: bytes, name: str) -> str:
    """Returns the values in base64, encrypted for the job with this name alone."""
    nonce = os.urandom(_NONCE_BYTES)
    plain = json.dumps(dict(values)).encode()
    sealed = nonce + AESGCM(derived(key, "secrets")).encrypt(nonce, plain, name.encode())
    return base64.b64encode(sealed).decode()


def unseal(content: str, *, key: bytes, name: str) -> dict[str, str]:
    """Returns what `seal` was given. Raises ConfigError if it was changed, or belongs to another job."""
    try:
        sealed = base64.b64decode(content, validate=True)
        plain = AESGCM(derived(key, "secrets")).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name.encode())
    except (InvalidTag, ValueError):
        raise ConfigError("the attempt's secrets cannot be decrypted: they are not those of this start") from None
    return json.loads(plain)


def start_of(key: bytes) -> str:
    """Returns the public name of the start whose key this is."""
    return derived(key, "start").hex()[:16]


def derived(key: bytes, purpose: str) -> bytes:
    """Returns the key for one purpose."""
    return hmac.digest(key, purpose.encode(), hashlib.sha256)


def parse_key(text: str) -> bytes:
    """Reads a key of hexadecimal digits. Raises ConfigError."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ConfigError("the attempt's key did not arrive")
    return key
