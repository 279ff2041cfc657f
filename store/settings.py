"""The settings of every program: `TORCHYARD_*` variables, with defaults for one laptop."""

from datetime import timedelta
from functools import cached_property
import os
from pathlib import Path
import re
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from torchyard.errors import ConfigError
from torchyard.schema import parse_duration

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]

_PREFIX = "TORCHYARD_"
_SENDFILE = re.compile(r"(x-sendfile|x-accel-redirect:/[A-Za-z0-9._/-]+)?")
_HOST_NAME = re.compile(r"\*|(\*\.)?[a-z0-9._-]+")


def _host_names(value: str) -> str:
    for name in _split(value):
        if _HOST_NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is no name: write names such as yard.example.com, with neither scheme nor port")
    return value


def _sendfile(value: str) -> str:
    if _SENDFILE.fullmatch(value) is None:
        raise ValueError(f"use x-sendfile, x-accel-redirect:/LOCATION, or nothing, not {value!r}")
    return value


def _age(value: Any) -> timedelta | None:
    return None if value in {None, ""} else parse_duration(value)


def _size(value: Any) -> Any:
    return None if value == "" else value


def _split(names: str) -> list[str]:
    return [name.strip().lower() for name in names.split(",") if name.strip()]


Age = Annotated[timedelta | None, BeforeValidator(_age)]
"""`30d`, or empty for ever."""
Size = Annotated[Annotated[int, Field(ge=0, lt=2**62)] | None, BeforeValidator(_size)]
"""Bytes, or empty for any number."""


class Settings(BaseSettings):
    """Read from the environment when it is made. Raises pydantic.ValidationError; programs use `load`."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True)

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
    allowed_hosts: Annotated[str, AfterValidator(_host_names)] = ""
    """Names, separated by `,`, that the API answers to besides this machine's own; `*.example.com` and `*` too."""
    sendfile: Annotated[str, AfterValidator(_sendfile)] = ""
    """How a proxy before the API sends files in its stead: `x-sendfile`, or `x-accel-redirect:/LOCATION`."""
    max_body_bytes: Annotated[int, Field(ge=1)] = 1_048_576
    max_connections: Annotated[int, Field(ge=1)] = 2_000
    head_timeout_s: Seconds = 10
    """For all of a request's head, from its first byte."""
    body_timeout_s: Seconds = 30
    """Without a byte of a request's body."""
    stall_timeout_s: Seconds = 120
    """In which a client has taken nothing of its answer."""
    keep_logs: Age = None
    """After the end of a job."""
    keep_logs_bytes: Size = None
    """Of each finished job."""
    keep_events: Age = None
    """After the end of a job; changes of its state stay."""
    keep_events_bytes: Size = None
    """Of each finished job, as `keep_events`."""
    keep_runs: Age = None
    """Run directories, after the end of the attempt."""
    keep_runs_bytes: Size = None
    """All run directories of this host."""

    @classmethod
    def load(cls) -> Self:
        """Raises ConfigError, which names each variable that is wrong."""
        try:
            return cls()
        except ValidationError as error:
            found = [
                (str(item["loc"][0]).upper(), item["msg"].removeprefix("Value error, ")) for item in error.errors()
            ]
            raise ConfigError("; ".join(f"{_PREFIX}{name}: {message}" for name, message in found)) from None

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
        return frozenset(_split(self.allowed_hosts))

    @property
    def allowed(self) -> tuple[Path, ...]:
        return tuple(Path(part) for part in self.allow_paths.split(os.pathsep) if part)
