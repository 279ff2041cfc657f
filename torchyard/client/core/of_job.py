"""Lets the operations on one job take what names it: its id, its name, or the beginning of its id."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from torchyard.client.references import is_short_id, is_whole_id, job_id_of
from torchyard.contract.errors import NotFound

P = ParamSpec("P")
T = TypeVar("T")
_KEY = "job_id"
"""The parameter that names the job: the first one."""


def of_job(operation: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Returns the operation whose `job_id` may be anything that `get` takes. A whole id costs no look-up."""

    do: Callable[..., Coroutine[Any, Any, T]] = operation

    @wraps(operation)
    async def method(*args: P.args, **options: P.kwargs) -> T:
        call = _Call(args, options)
        try:
            return await do(*await call.first(), **call.options)
        except NotFound:
            other = await call.second()
            if other is None:
                raise
        return await do(*other, **call.options)

    return method


def each_of_job(operation: Callable[P, AsyncGenerator[T]]) -> Callable[P, AsyncGenerator[T]]:
    """Returns the operation that yields, and whose `job_id` may be anything that `get` takes."""

    do: Callable[..., AsyncGenerator[T]] = operation

    @wraps(operation)
    async def method(*args: P.args, **options: P.kwargs) -> AsyncGenerator[T]:
        call, begun, other = _Call(args, options), False, None
        try:
            async with aclosing(do(*await call.first(), **call.options)) as items:
                async for item in items:
                    begun = True
                    yield item
        except NotFound:
            other = None if begun else await call.second()
            if other is None:
                raise
        if other is not None:
            async with aclosing(do(*other, **call.options)) as items:
                async for item in items:
                    yield item

    return method


class _Call:
    """One call. What may be a whole id is taken for one, and looked up after the answer that there is none."""

    def __init__(self, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.options = {key: value for key, value in options.items() if key != _KEY}
        self._core, *rest = args
        self._ref, *self._rest = [options[_KEY], *rest] if _KEY in options else rest
        self._tried = self._ref.startswith("job_") and not is_short_id(self._ref)

    async def first(self) -> Any:
        """Returns the arguments of the operation. Raises NotFound and Conflict for a name that is none."""
        if self._tried:
            return (self._core, self._ref, *self._rest)
        return await self._looked_up()

    async def second(self) -> Any:
        """Returns the arguments after an answer that something is not there; None where the id was right."""
        if not self._tried or is_whole_id(self._ref):
            return None
        try:
            return await self._looked_up()
        except NotFound:
            return None

    async def _looked_up(self) -> Any:
        return (self._core, await job_id_of(self._core._connection, self._ref), *self._rest)
