"""The settings of the API: `TORCHYARD_*` variables, with defaults for one laptop."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from store import settings

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]

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


def _split(names: str) -> list[str]:
    return [name.strip().lower() for name in names.split(",") if name.strip()]


class Settings(settings.Settings):
    """Where the data is, and how the API serves. As `store.settings.Settings`."""

    token: SecretStr | None = None
    """The admin token that the API accepts."""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
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

    @property
    def host_names(self) -> frozenset[str]:
        return frozenset(_split(self.allowed_hosts))
