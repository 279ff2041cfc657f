"""Takes the values of options that are plainly right. typer would load pydantic for them, which takes longer than all
that a short command does. All others typer checks, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
import os
from pathlib import Path
import re
from typing import Any, get_args, get_origin

_WHOLE = re.compile(r"-?[0-9]{1,15}")
_UNKNOWN = object()


class PlainValues:
    """A command whose parameters take plain values at once. It stands before typer's class."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Returns the parameters, also the option --help."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in found:
            if not isinstance(vars(parameter).get("get_runtime_param"), _Taking):
                parameter.get_runtime_param = _Taking(parameter)
        return found


class _Taking:
    """Answers itself as what converts a parameter's values."""

    def __init__(self, parameter: Any) -> None:
        self._by_typer = parameter.get_runtime_param
        self._kind = parameter.type_descriptor.annotation
        self._info = parameter.type_descriptor.parameter_info

    def __call__(self) -> _Taking:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Returns the value as the parameter's type. Raises BadParameter."""
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        found = self._plain(value, self._kind) if self._info.parser is None else _UNKNOWN
        return self._by_typer().coerce(value, param=param, ctx=ctx) if found is _UNKNOWN else found

    def _plain(self, value: Any, kind: Any) -> Any:
        """Returns the value as `kind`, `_UNKNOWN` for what typer shall look at."""
        if get_origin(kind) is list and isinstance(value, (list, tuple)):
            items = [self._plain(item, get_args(kind)[0]) for item in value]
            return _UNKNOWN if _UNKNOWN in items else items
        if kind is Path and isinstance(value, (str, Path)):
            return Path(value) if self._may_be(value) else _UNKNOWN
        if not isinstance(value, str):
            is_default = kind is int and type(value) is int and self._is_within(value)
            return value if is_default else _UNKNOWN
        if kind is str:
            return value
        if kind is int and _WHOLE.fullmatch(value) and self._is_within(int(value)):
            return int(value)
        members: Iterable[Any] = kind if isinstance(kind, type) and issubclass(kind, Enum) else ()
        return next((member for member in members if str(member.value) == value), _UNKNOWN)

    def _may_be(self, path: str | Path) -> bool:
        """Whether the option asks nothing of its path but that it can be read, and it can, or there is none."""
        asks = self._info.exists or self._info.writable or self._info.resolve_path or self._info.path_type
        takes_all = self._info.file_okay and self._info.dir_okay and not asks
        return takes_all and (os.access(path, os.R_OK) or not os.path.lexists(path))

    def _is_within(self, number: int) -> bool:
        least, most = self._info.min, self._info.max
        return (least is None or number >= least) and (most is None or number <= most)
