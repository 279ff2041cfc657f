"""The service that this host has joined as a remote worker: a file of the data directory, which has its token."""

from dataclasses import dataclass, field
from pathlib import Path
import ssl
from typing import Annotated

from torchyard.contract.errors import ConfigError
from torchyard.contract.wire.codec import Record, matching
from torchyard.host import trust
from torchyard.host.datadir import own_data_dir
from torchyard.host.privatefile import open_own, write_private

JOINED_FILE = "joined.json"
"""A file of the data directory. A worker whose data directory has it reaches its service over HTTPS alone."""
_MOST_BYTES = 256 << 10
"""Of the file. A certificate has less than ten thousand."""


@dataclass(frozen=True, kw_only=True)
class Joined(Record):
    """A service, and the worker that this host is there."""

    url: Annotated[str, matching(r"https://[^\s/?#@]+", "an address such as https://HOST:PORT")]
    worker_id: Annotated[str, matching(r"wrk_[0-9a-f]{32}", "the id of a worker")]
    name: str
    """What the worker is called there."""
    token: Annotated[str, matching(r"tyw_[\x21-\x7e]{1,200}", "the token of a worker")] = field(repr=False)
    certificate: str | None
    """As PEM, the only certificate that the service may have; None: one that an authority has given to its host."""


def joined_data_dir() -> Path:
    """Returns the data directory of this user's worker of another machine's service."""
    return own_data_dir().with_name("torchyard-worker")


def load(path: Path) -> Joined:
    """Returns what the file says. Raises FileNotFoundError, and ConfigError for a file that others may use, or that
    has something else.
    """
    try:
        with open_own(path) as file:
            content = file.read(_MOST_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{path} has a token, and is not used: {error.strerror}") from None
    try:
        return Joined.from_json(content)
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}. Join again: torchyard join URL --code CODE") from None


def known(data_dir: Path) -> Joined:
    """Returns what the worker of this data directory has joined. Raises ConfigError, also if it has joined nothing."""
    path = data_dir / JOINED_FILE
    try:
        return load(path)
    except FileNotFoundError:
        raise ConfigError(
            f"this machine has joined no service (there is no {path}): an administrator prints the line for it with"
            " `torchyard workers add NAME`"
        ) from None


def save(path: Path, joined: Joined) -> None:
    """Replaces the file, which only this user can read. Raises OSError."""
    write_private(path, joined.to_json())


def ssl_context(joined: Joined) -> ssl.SSLContext:
    """Returns what checks the certificate of the service. Raises ConfigError if its own cannot be read."""
    return trust.context(joined.certificate)
