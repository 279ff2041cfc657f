"""The servers to which the user has logged in: a file with their tokens, which only the user can read."""

from dataclasses import dataclass, field
import json
import os
from pathlib import Path
import shlex
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from torchyard.contract.errors import ConfigError
from torchyard.contract.wire.codec import Record
from torchyard.host.privatefile import write_private

R = TypeVar("R", bound=Record)


def _without_slash(url: str) -> str:
    return url.rstrip("/")


@dataclass(frozen=True, kw_only=True)
class Login(Record):
    """A server's address and the user's token for it."""

    url: Annotated[str, _without_slash]
    token: str
    certificate: str | None = None
    """PEM of the only certificate that is accepted. None: any that a public authority issued for the host."""


@dataclass(frozen=True, kw_only=True)
class Logins(Record):
    """The logins by name. `default` names the one that is used unless TORCHYARD_SERVER names another."""

    default: str | None = None
    servers: dict[str, Login] = field(default_factory=dict[str, Login])

    @property
    def in_use(self) -> str | None:
        """The name of the login that is used, if one is."""
        return os.environ.get("TORCHYARD_SERVER") or self.default

    def get(self, name: str) -> Login:
        """Returns the login of that name. Raises ConfigError."""
        if name not in self.servers:
            known = f"there are {', '.join(self.servers)}" if self.servers else "there is none"
            raise ConfigError(f"there is no login {name!r}: {known}; `torchyard login URL --name NAME` adds one")
        return self.servers[name]

    def adding(self, name: str, login: Login) -> "Logins":
        """Returns these and the login, which is the default."""
        return Logins(default=name, servers={**self.servers, name: login})

    def using(self, name: str) -> "Logins":
        """Returns these, with the login of that name as the default. Raises ConfigError."""
        self.get(name)
        return Logins(default=name, servers=self.servers)

    def removing(self, name: str) -> "Logins":
        """Returns these without the login. If it was the default, there is none. Raises ConfigError."""
        self.get(name)
        rest = {other: login for other, login in self.servers.items() if other != name}
        return Logins(default=None if self.default == name else self.default, servers=rest)


def login_file() -> Path:
    """Returns the path of the file that has the logins."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return config / "torchyard" / "login.json"


def default_name(url: str) -> str:
    """Returns the name of a login that was given none: the address without its scheme."""
    return urlsplit(url).netloc


def read_logins() -> Logins:
    """Returns the user's logins. Raises ConfigError, also for a file that others can read."""
    path = login_file()
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read()
    except (FileNotFoundError, NotADirectoryError):
        return Logins()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if mode & 0o077:
        raise ConfigError(f"{path} has tokens, and others can read it: run `chmod 600 {shlex.quote(str(path))}`")
    return parse(Logins, content, path=path)


def write_logins(logins: Logins) -> None:
    """Replaces the user's logins. Raises OSError."""
    path = login_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    write_private(path, json.dumps(logins.to_dict(), indent=2))


def parse(kind: type[R], content: bytes, *, path: Path) -> R:
    """Returns what the file at `path` holds. Raises ConfigError, which names the file and the first wrong field."""
    try:
        values: Any = json.loads(content)
    except (ValueError, RecursionError):
        raise ConfigError(f"{path} cannot be read: is not JSON") from None
    try:
        if not isinstance(values, dict):
            raise ValueError("must be an object: keys with values")
        return kind.from_dict(values)
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {_wrong_login(values) or error}") from None


def _wrong_login(values: Any) -> str | None:
    """Returns what is wrong with the first login that is, with the name that it has in the file."""
    servers = values.get("servers") if isinstance(values, dict) else None
    for name, found in servers.items() if isinstance(servers, dict) else ():
        try:
            Login.from_dict(found if isinstance(found, dict) else {})
        except ValueError as error:
            return f"servers.{name}.{error}"
    return None
