"""What a run shows has a limit, as it is stored."""

import pytest

from torchyard.contract.media.data import DATA_BYTES, media_data, size_of
from torchyard.contract.media.kinds import MediaKind


def test_data_beyond_the_limit_is_refused_with_its_size() -> None:
    empty = size_of(media_data(MediaKind.TEXT, {"text": ""}))
    assert size_of(media_data(MediaKind.TEXT, {"text": "x" * (DATA_BYTES - empty)})) == DATA_BYTES
    with pytest.raises(ValueError, match=f"its data has {DATA_BYTES + 1} bytes: it may have {DATA_BYTES}"):
        media_data(MediaKind.TEXT, {"text": "x" * (DATA_BYTES - empty + 1)})
