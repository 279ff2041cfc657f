"""Runs the core's operations without an event loop: each await blocks the thread until its result is there."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager
from functools import update_wrapper
import inspect
import time
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, get_args, overload
import weakref

import httpx2

from torchyard.client.connection import Connection
from torchyard.client.core.base import Core
from torchyard.client.discovery import Server
from torchyard.client.transport import http_options

C = TypeVar("C")
H = TypeVar("H")
P = ParamSpec("P")
T = TypeVar("T")
Core_co = TypeVar("Core_co", covariant=True)
Core_contra = TypeVar("Core_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)


class Driver(Generic[Core_co]):
    """An object whose methods are operations of its core, which block until their result is there."""

    def __init__(self, core: Core_co) -> None:
        self._core = core


class Method(Protocol[Core_contra, P, T_co]):
    """A function that a class of drivers has as its method: unlike a `Callable`, it says that it binds."""

    @overload
    def __get__(self, driver: None, owner: type, /) -> Callable[Concatenate[Driver[Core_contra], P], T_co]: ...
    @overload
    def __get__(self, driver: Driver[Core_contra], owner: type | None = None, /) -> Callable[P, T_co]: ...


@overload
def blocking(
    operation: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Method[C, P, T]: ...
@overload
def blocking(operation: Callable[Concatenate[C, P], Coroutine[Any, Any, T]], handle: type[H]) -> Method[C, P, H]: ...
def blocking(
    operation: Callable[..., Coroutine[Any, Any, Any]], handle: type[Any] | None = None
) -> Method[Any, ..., Any]:
    """Returns the method that runs the operation and returns its result, or with `handle`, that driver of it."""

    def method(driver: Driver[Any], /, *args: Any, **options: Any) -> Any:
        result = run(operation(driver._core, *args, **options))  # pyright: ignore[reportPrivateUsage] - its method
        return result if handle is None else handle(result)

    update_wrapper(method, operation)
    if handle is not None:
        _annotate(method, operation, returns=handle)
    return method


@overload
def iterating(
    operation: Callable[Concatenate[C, P], AsyncGenerator[T]],
) -> Method[C, P, Generator[T]]: ...
@overload
def iterating(
    operation: Callable[Concatenate[C, P], AsyncGenerator[Any]], handle: type[H]
) -> Method[C, P, Generator[H]]: ...
def iterating(
    operation: Callable[..., AsyncGenerator[Any]], handle: type[Any] | None = None
) -> Method[Any, ..., Generator[Any]]:
    """Returns the method that yields the operation's items, which are fetched as the caller asks for them, or with
    `handle`, that driver of each.
    """

    def method(driver: Driver[Any], /, *args: Any, **options: Any) -> Generator[Any]:
        items = operation(driver._core, *args, **options)  # pyright: ignore[reportPrivateUsage] - its method
        return iterate(items) if handle is None else _handles(iterate(items), handle)

    update_wrapper(method, operation)
    item = handle or get_args(inspect.signature(operation).return_annotation)[0]
    _annotate(method, operation, returns=Generator[item])
    return method


def ask(
    client: Driver[Core],
    operation: Callable[Concatenate[Connection, P], Coroutine[Any, Any, T]],
    /,
    *args: P.args,
    **options: P.kwargs,
) -> T:
    """Runs an operation over the connection of a client: one that the command line needs and no client has."""
    connection = client._core._connection  # pyright: ignore[reportPrivateUsage] - theirs is the same package
    return run(operation(connection, *args, **options))


def run(operation: Coroutine[Any, Any, T]) -> T:
    """Runs an operation to its end and returns its result.

    On a BlockingTransport no await ever suspends, so the first step is the whole operation.
    """
    try:
        operation.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("the operation was suspended: its transport does not block")


def iterate(items: AsyncGenerator[T]) -> Generator[T]:
    """Yields the items of an operation, and closes it when the caller stops."""
    try:
        while True:
            try:
                item = run(anext(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())


def _handles(items: Generator[T], handle: Callable[[T], H]) -> Generator[H]:
    for item in items:
        yield handle(item)


class BlockingTransport:
    """A transport whose awaits block the thread."""

    def __init__(self, server: Server) -> None:
        self._http = httpx2.Client(**http_options(server))
        # Closes also when the last list or stream that reads from it is garbage.
        self._close = weakref.finalize(self, self._http.close)

    async def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        return self._http.request(method, path, **options)

    async def upload(self, path: str, body: Generator[bytes], **options: Any) -> httpx2.Response:
        return self._http.put(path, content=body, **options)

    @asynccontextmanager
    async def stream(self, path: str, **options: Any) -> AsyncGenerator["_StreamedResponse"]:
        with self._http.stream("GET", path, **options) as response:
            yield _StreamedResponse(response)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - blocks by design

    async def close(self) -> None:
        self._close()


class _StreamedResponse:
    def __init__(self, response: httpx2.Response) -> None:
        self.response = response

    async def read(self) -> None:
        self.response.read()

    def chunks(self) -> AsyncIterator[bytes]:
        return _Blocking(self.response.iter_raw())

    def events(self) -> AsyncIterator[httpx2.ServerSentEvent]:
        return _Blocking(iter(httpx2.EventSource(self.response)))


class _Blocking(Generic[T]):
    """An asynchronous iterator that blocks until the next item is there."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return next(self._items)
        except StopIteration:
            raise StopAsyncIteration from None


def _annotate(method: Callable[..., Any], operation: Callable[..., Any], *, returns: Any) -> None:
    """Gives the method the signature of the operation, for `help` and the docs."""
    vars(method)["__signature__"] = inspect.signature(operation).replace(return_annotation=returns)
    method.__annotations__ = {**operation.__annotations__, "return": returns}
