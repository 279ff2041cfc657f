from collections.abc import Callable, Iterator

import pytest

from tests.worker.attempt import Attempt
from tests.worker.reaching import Reached


@pytest.fixture
def reach(attempt: Attempt) -> Iterator[Callable[[], Reached]]:
    """Makes a client that reaches into the attempt. Its connections are closed in the end."""
    made: list[Reached] = []

    def make() -> Reached:
        made.append(Reached(attempt.run))
        return made[-1]

    yield make
    for each in made:
        each.cut()
