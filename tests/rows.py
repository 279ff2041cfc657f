"""Runs a test with several rows of values, one after the other, on what it has set up once."""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

Test = Callable[..., None]


def each_row(names: str | Sequence[str], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Takes the place of `pytest.mark.parametrize` where no row changes what another one sees.

    A service, a host or a program is then set up once, not for each row. The note of an error names its row.
    """
    all_rows = [*values]
    known = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]

    def decorate(test: Test) -> Test:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            for row in all_rows:
                own = dict(zip(known, row if len(known) > 1 else [row], strict=True))
                try:
                    test(**fixtures, **own)
                except BaseException as error:
                    error.add_note(f"in the row {own!r}")
                    raise

        whole = signature(test)
        left = [each for name, each in whole.parameters.items() if name not in known]
        run.__signature__ = whole.replace(parameters=left)  # pyrefly: ignore[missing-attribute] pytest reads it
        return run

    return decorate
