"""What all tests of the trainer share."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """What the tests compute is so small that several threads would mostly wait for each other."""
    torch.set_num_threads(1)
