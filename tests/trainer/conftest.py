"""Fixtures of all tests of the trainer."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Sets one thread: with so little to compute, several threads mostly wait for each other."""
    torch.set_num_threads(1)
