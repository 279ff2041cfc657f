"""How the tar of a bundle may end."""

from io import BytesIO

import pytest

from torchyard.contract.bundles.tar import BLOCK, END, BundleContents, header, padding, verify
from torchyard.contract.errors import InvalidBundle

WHOLE = header("a", size=1, executable=False) + b"1" + padding(1) + END


def test_as_many_zeros_may_follow_the_end_as_fill_a_record() -> None:
    filled = WHOLE + bytes(20 * BLOCK)
    assert verify(BytesIO(WHOLE)) == verify(BytesIO(filled)) == BundleContents(files=1, bytes=1)
    with pytest.raises(InvalidBundle, match="more behind the end"):
        verify(BytesIO(filled + bytes(BLOCK)))
