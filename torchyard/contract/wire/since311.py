"""What Python has since 3.11, also for ranks in an environment with 3.10."""

import sys
from typing import Any

if sys.version_info >= (3, 11):  # noqa: UP036 ranks run on 3.10, too
    from enum import StrEnum
    from typing import Self
else:  # pragma: no cover
    from enum import Enum

    class StrEnum(str, Enum):  # noqa: UP042 as the one of 3.11
        """Its members are texts, and shown as these."""

        __str__ = str.__str__
        __format__ = str.__format__

        @staticmethod
        def _generate_next_value_(name: str, start: int, count: int, last_values: list[Any]) -> str:
            return name.lower()

    Self = Any

__all__ = ["Self", "StrEnum"]
