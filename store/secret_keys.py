"""Encrypts the secrets of users with AES-GCM (NIST SP 800-38D). The keys are never stored in the database."""

from collections.abc import Iterable, Sequence
from functools import cached_property
import hashlib
import os
from pathlib import Path
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from torchyard.contract.errors import ConfigError
from torchyard.host.privatefile import create_private

_KEY_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 12, 16
_HOW = "make one with: python3 -c 'import secrets; print(secrets.token_hex(32))'"


class SecretKeys:
    """The keys of one program, from `setting` or else from a file that is made at the first use.

    The first key encrypts; each of them decrypts. The methods raise ConfigError if the keys cannot be used.
    """

    def __init__(self, setting: str, file: Path) -> None:
        """`setting`: keys separated by `,`. `file`: one key a line, readable by its owner alone."""
        self._setting = setting
        self._file = file

    @property
    def current_id(self) -> str:
        """The id of the key that encrypts."""
        return next(iter(self._keys))

    def encrypt(self, value: str, *, owner: str, name: str) -> bytes:
        """Returns the value, encrypted for this owner and name alone."""
        nonce = os.urandom(_NONCE_BYTES)
        cipher = next(iter(self._keys.values()))
        return nonce + cipher.encrypt(nonce, value.encode(), _bound_to(owner, name))

    def decrypt(self, encrypted: bytes, *, key_id: str, owner: str, name: str) -> str:
        """Returns the value. Raises ConfigError, too, if the key is not here or the row was changed."""
        if self.lacking([key_id]):
            raise ConfigError(
                f"secret {name} of {owner} was encrypted with key {key_id}, which this program lacks: give the API and"
                " all workers the same TORCHYARD_SECRET_KEY"
            )
        cipher = self._keys[key_id]
        nonce, rest = encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:]
        try:
            return cipher.decrypt(nonce, rest, _bound_to(owner, name)).decode()
        except InvalidTag:
            raise ConfigError(f"secret {name} of {owner} cannot be decrypted: set it again") from None

    def lacking(self, key_ids: Iterable[str]) -> set[str]:
        """Returns those of the keys that this program does not have. Makes no file."""
        known = self._keys if self._setting or self._file.exists() else {}
        return set(key_ids).difference(known)

    @cached_property
    def _keys(self) -> dict[str, AESGCM]:
        written = self._setting.split(",") if self._setting else _read(self._file)
        keys = [_parsed(text.strip(), source=self._source) for text in written if text.strip()]
        if not keys:
            raise ConfigError(f"{self._source} has no key: {_HOW}")
        return {hashlib.sha256(key).hexdigest()[:16]: AESGCM(key) for key in keys}

    @property
    def _source(self) -> str:
        return "TORCHYARD_SECRET_KEY" if self._setting else str(self._file)


def bytes_of(encrypted: bytes) -> int:
    """Returns how many bytes the value has."""
    return len(encrypted) - _NONCE_BYTES - _TAG_BYTES


def _bound_to(owner: str, name: str) -> bytes:
    return f"{owner}\0{name}".encode()


def _parsed(text: str, *, source: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ConfigError(f"{source} has a key that is not {2 * _KEY_BYTES} hexadecimal digits: {_HOW}")
    return key


def _read(file: Path) -> Sequence[str]:
    try:
        if not file.exists():
            create_private(file, secrets.token_hex(_KEY_BYTES) + "\n")  # unless another program has made it meanwhile
        if file.stat().st_mode & 0o077:
            raise ConfigError(f"{file} can be read by others: chmod 600 {file}")
        return file.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"the key of secrets cannot be read: {error}") from None
