"""The settings of every program: `TORCHYARD_*` variables, with defaults for one laptop."""

from functools import cached_property
import os
from pathlib import Path
import re
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]

_SENDFILE = re.compile(r"(x-sendfile|x-accel-redirect:/[A-Za-z0-9._/-]+)?")


def _known_sendfile(value: str) -> str:
    if _SENDFILE.fullmatch(value) is None:
        raise ValueError("use x-sendfile, x-accel-redirect:/LOCATION, or nothing")
    return value


class Settings(BaseSettings):
    """Read from the environment when it is made. Raises pydantic.ValidationError."""

    model_config = SettingsConfigDict(env_prefix="TORCHYARD_", frozen=True)

    data_dir: Path = Path(".torchyard")
    database_url: str = ""
    """Empty: SQLite in the data directory."""
    redis_url: str = ""
    """Empty: the unix socket in the data directory."""
    token: SecretStr | None = None
    """The admin token that the API accepts."""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    cpu_slots: Annotated[int, Field(ge=0, le=4096)] | None = None
    allow_paths: str = ""
    """Folders below which a job may name `file://` data and code, separated by `:`."""
    allowed_hosts: str = ""
    """Names, separated by `,`, that the API answers to besides this machine's own; `*.example.com` and `*` too."""
    sendfile: Annotated[str, AfterValidator(_known_sendfile)] = ""
    """How a proxy before the API sends files in its stead: `x-sendfile`, or `x-accel-redirect:/LOCATION`."""
    max_body_bytes: Annotated[int, Field(ge=1)] = 1_048_576
    max_connections: Annotated[int, Field(ge=1)] = 2_000
    head_timeout_s: Seconds = 10
    """For all of a request's head, from its first byte."""
    body_timeout_s: Seconds = 30
    """Without a byte of a request's body."""
    stall_timeout_s: Seconds = 120
    """In which a client has taken nothing of its answer."""

    @cached_property
    def root(self) -> Path:
        return self.data_dir.absolute()

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.root / 'torchyard.db'}"

    @property
    def redis(self) -> str:
        return self.redis_url or f"unix://{self.root / 'redis' / 'redis.sock'}"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def host_names(self) -> frozenset[str]:
        return frozenset(name.strip().lower() for name in self.allowed_hosts.split(",") if name.strip())

    @property
    def allowed(self) -> tuple[Path, ...]:
        return tuple(Path(part) for part in self.allow_paths.split(os.pathsep) if part)
