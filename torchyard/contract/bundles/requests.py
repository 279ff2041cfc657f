"""The bodies of requests about bundles."""

from typing import Annotated

from pydantic import Field

from torchyard.contract.bundles.parts import MOST_PARTS_ASKED
from torchyard.contract.wire.schema import Schema
from torchyard.contract.wire.wording import allowing

DATA_NAME = allowing(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
    "1 to 100 letters, digits, `.`, `_` and `-`, of which the first is a letter or a digit",
)
DataName = Annotated[str, Field(pattern=DATA_NAME)]
"""What a user calls a bundle of data: `data:NAME`."""
_Digest = Annotated[str, Field(pattern=allowing(r"^[0-9a-f]{64}$", "the 64 hexadecimal digits of a sha256"))]


class NewBundleName(Schema):
    """A name for a bundle."""

    name: DataName


class WantedParts(Schema):
    """Parts of a tar that you want to upload."""

    parts: Annotated[list[_Digest], Field(min_length=1, max_length=MOST_PARTS_ASKED)] = Field(
        description="sha256 of each part, in the order of the tar"
    )
