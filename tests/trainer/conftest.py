"""Fixtures of all tests of the trainer."""

from collections.abc import Generator

import pytest
import torch

from trainer.data import loaders


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Sets one thread: with so little to compute, several threads mostly wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps decoded pictures out of the cache of who runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(autouse=True)
def no_loaders() -> Generator[None]:
    """Ends the loader processes that a test has started."""
    yield
    loaders.close()
