"""The loader processes of this process: they start with the first batch, and live until the run ends."""

import atexit
from collections.abc import Callable, Iterable, Iterator
from functools import partial
import os
import signal
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from torchyard.contract.errors import DataError
from torchyard.host.parent import end_with_parent

R = TypeVar("R")
T = TypeVar("T")


def answers(load: Callable[[R], T], requests: Iterable[R], *, workers: int, pinned: bool) -> Iterator[T | DataError]:
    """Yields what `load` returns or the DataError that it raises for each of the `requests`, in their order.

    `workers` processes call it ahead, and go on with the requests of the next call: `load` and each request are
    pickled, so both must be small. Tensors come in pinned memory if `pinned`. A second call ends the first one.
    """
    global _pool  # noqa: PLW0603 the processes of this process
    if not workers:
        yield from map(partial(_answer, load), requests)
        return
    if _pool is None or (_pool.workers, _pool.pinned) != (workers, pinned):
        close()
        _pool = _Pool(workers, pinned=pinned)
    yield from _pool.answers(load, requests)


def close() -> None:
    """Ends the loader processes, if there are any. Called by itself when the program ends."""
    global _pool
    pool, _pool = _pool, None
    if pool is not None:
        pool.close()


class _Pool:
    def __init__(self, workers: int, *, pinned: bool) -> None:
        self.workers, self.pinned = workers, pinned
        self._calls = _Calls()
        self._loader: DataLoader[Any] = DataLoader(
            _Answers(),
            sampler=self._calls,
            batch_size=None,
            num_workers=workers,
            persistent_workers=True,
            multiprocessing_context="fork",  # each is then a child of the rank, and has its imports
            pin_memory=pinned,
            worker_init_fn=partial(_start, os.getpid()),
            generator=torch.Generator(),  # its own: every loader would draw from the shared one
        )

    def answers(self, load: Callable[[R], T], requests: Iterable[R]) -> Iterator[T | DataError]:
        calls = self._calls.next = ((load, request) for request in requests)
        for answer in self._loader:
            yield answer
            assert self._calls.next is calls, "a later call has ended this one"

    def close(self) -> None:
        """Ends the processes, though a traceback may still refer to their DataLoader."""
        iterator: Any = self._loader._iterator  # pyright: ignore[reportPrivateUsage] nothing else ends them
        if iterator is not None:
            iterator._shutdown_workers()


class _Calls:
    """The sampler of the DataLoader. It asks anew whenever its answers are asked for."""

    def __init__(self) -> None:
        self.next: Iterator[tuple[Callable[[Any], Any], Any]] = iter(())

    def __iter__(self) -> Iterator[tuple[Callable[[Any], Any], Any]]:
        return self.next


class _Answers(Dataset[Any]):
    """The data set of the DataLoader, which is indexed by calls: so it holds nothing, and serves all data."""

    def __getitem__(self, call: tuple[Callable[[Any], Any], Any]) -> Any:  # pyrefly: ignore[bad-override-param-name] by []
        load, request = call
        return _answer(load, request)


def _answer(load: Callable[[R], T], request: R) -> T | DataError:
    try:
        return load(request)
    except DataError as error:
        return error  # if it were raised in a loader process, users would see it inside a traceback


def _start(rank: int, _: int) -> None:
    """Sets one thread, lets SIGTERM end the process, though the rank may handle it, and ends it with the rank."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(signal.SIGKILL)
    if os.getppid() != rank:
        os._exit(1)


_pool: _Pool | None = None
# Before multiprocessing kills them, which PyTorch reports as a failure, with a traceback.
atexit.register(close)
