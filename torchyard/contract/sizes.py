"""Sizes as people write them."""

import re

_SIZE = re.compile(r"([0-9]{1,15}) ?(?:B|([KMGT])(i?)B)?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(text: str) -> int:
    """Returns the bytes of a size: `200MB` is 200 million, `200MiB` are 200 times 2^20. Raises ValueError."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("must be a size: 500KiB, 200MiB, 200MB, 1GiB, or a number of bytes")
    return int(match[1]) * (1024 if match[3] else 1000) ** _POWERS[(match[2] or "").upper()]
