"""Python's garbage collector while a program starts."""

from collections.abc import Generator
from contextlib import contextmanager
import gc


@contextmanager
def paused() -> Generator[None]:
    """For imports. They make hundreds of thousands of objects that stay: looking through them again and again takes an
    eighth of a start. What is there at the end is never looked through any more.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
