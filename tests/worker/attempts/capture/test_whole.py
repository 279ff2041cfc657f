"""Whether a file is whole, as its own bytes tell."""

import io
import json
from pathlib import Path
import struct
import tracemalloc
import zipfile

import pytest
import torch

from worker.attempts.capture import whole
from worker.attempts.capture.whole import is_whole


def zipped(*sizes: int, comment: bytes = b"") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number, size in enumerate(sizes):
            archive.writestr(f"{number}/data", b"x" * size)
        archive.comment = comment
    return file.getvalue()


def zipped64(*sizes: int) -> bytes:
    """A zip whose end says that sizes and offsets stand in the longer record."""
    plain = zipped(*sizes)
    end = plain.rindex(b"PK\x05\x06")
    *_, count, length, start, _ = struct.unpack("<4s4H2LH", plain[end:])
    longer = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, length, start)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1)
    last = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return plain[:end] + longer + locator + last


def safetensors(*ends: int, data: int | None = None) -> bytes:
    tensors = {f"t{end}": {"dtype": "U8", "shape": [1], "data_offsets": [0, end]} for end in ends}
    header = json.dumps({"__metadata__": {"format": "pt"}, **tensors}).encode()
    return struct.pack("<Q", len(header)) + header + b"x" * (max(ends, default=0) if data is None else data)


def told(tmp_path: Path, name: str, content: bytes) -> bool | None:
    path = tmp_path / name
    path.write_bytes(content)
    with path.open("rb", buffering=0) as file:
        file.seek(3)
        found = is_whole(file, name)
        assert file.tell() == 3
    return found


def by_torch(value: float, *, beside: bytes = b"") -> bytes:
    """What `torch.distributed.checkpoint` writes of a value behind others."""
    file = io.BytesIO()
    torch.save(torch.full((3,), value), file)
    return beside + file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        *(zipped(10), zipped(10, 70_000), zipped(), zipped64(10, 70_000)),
        *(by_torch(1), by_torch(2, beside=by_torch(1)), zipped(10) + zipped64(20, 70_000)),
    ],
)
@pytest.mark.parametrize("name", ["a.pt", "a"])
def test_a_zip_is_whole_with_its_end_and_with_no_part_of_it(tmp_path: Path, content: bytes, name: str) -> None:
    assert told(tmp_path, name, content) is True
    assert told(tmp_path, name, content + b"x") is False
    for length in {*range(4, min(len(content), 100)), *range(max(4, len(content) - 200), len(content))}:
        assert told(tmp_path, name, content[:length]) is False, length


@pytest.mark.parametrize("comment", [b"c", b"with PK\x05\x06 in it, and more than a record has", b"x" * 0xFFFF])
def test_the_end_of_a_zip_may_have_a_comment(tmp_path: Path, comment: bytes) -> None:
    assert told(tmp_path, "a.zip", zipped(10, comment=comment)) is True
    assert told(tmp_path, "a.zip", zipped(10, comment=comment)[:-1]) is False


def test_a_zip_whose_beginning_was_written_over_with_zeros_is_not_one_that_is_known(tmp_path: Path) -> None:
    assert told(tmp_path, "a.pt", bytes(4) + zipped(10)[4:]) is None


def test_a_zip_without_the_directory_of_which_its_end_tells_is_not_whole(tmp_path: Path) -> None:
    content = zipped(10)
    at = content.index(b"PK\x01\x02")
    assert told(tmp_path, "a.pt", content[:at] + b"XX" + content[at + 2 :]) is False
    assert told(tmp_path, "a.pt", content[:4] + content[30:]) is False  # its end points behind it


def test_a_longer_record_that_is_none_is_not_believed(tmp_path: Path) -> None:
    content = zipped64(10)
    for signature in (b"PK\x06\x06", b"PK\x06\x07"):
        at = content.rindex(signature)
        assert told(tmp_path, "a.pt", content[:at] + b"XX" + content[at + 2 :]) is False


@pytest.mark.parametrize("name", ["model.safetensors", "MODEL.SafeTensors"])
def test_safetensors_are_whole_at_the_length_that_their_header_says(tmp_path: Path, name: str) -> None:
    assert told(tmp_path, name, safetensors(10, 500)) is True
    assert told(tmp_path, name, safetensors()) is True
    for data in (0, 1, 499, 501):
        assert told(tmp_path, name, safetensors(10, 500, data=data)) is False
    content = safetensors(10)
    for length in (1, 7, 8, 9, 50):
        assert told(tmp_path, name, content[:length]) is False


@pytest.mark.parametrize(
    "header",
    [
        *(b"[1]", b"1", b"{", b"\xff", b'{"t": 1}', b'{"t": {"data_offsets": [0]}}'),
        *(b'{"t": {"data_offsets": [0, "1"]}}', b'{"t": {"data_offsets": null}}', b"[" * 100_000),
    ],
)
def test_a_header_that_is_none_is_of_no_whole_file(tmp_path: Path, header: bytes) -> None:
    assert told(tmp_path, "a.safetensors", struct.pack("<Q", len(header)) + header) is False


def test_a_header_that_is_longer_than_is_read_is_of_no_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = safetensors(10)
    length = len(content) - 8 - 10
    monkeypatch.setattr(whole, "_LONGEST_HEADER", length)
    assert told(tmp_path, "a.safetensors", content) is True
    monkeypatch.setattr(whole, "_LONGEST_HEADER", length - 1)
    assert told(tmp_path, "a.safetensors", content) is False


@pytest.mark.parametrize("name", ["a.pt", "a.npy", "a.safetensors", "a.zip"])
def test_an_empty_file_is_never_whole(tmp_path: Path, name: str) -> None:
    assert told(tmp_path, name, b"") is False


@pytest.mark.parametrize("content", [b"x", b"\x80\x04legacy pickle", b"PK", b"{}"])
def test_the_bytes_of_other_formats_tell_nothing(tmp_path: Path, content: bytes) -> None:
    assert told(tmp_path, "a.pt", content) is None


def test_a_long_header_of_safetensors_is_judged_without_parsing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "_LONGEST_PARSED", 10)
    content = safetensors(70, 5_000)
    assert told(tmp_path, "a.safetensors", content) is True
    for torn in (content[:-1], content + b"x", content[:40] + bytes(40) + content[80:]):
        assert told(tmp_path, "a.safetensors", torn) is False
    name = json.dumps('"data_offsets":[0,9000]')  # in a text, whose quotes are escaped
    header = f'{{{name}:{{"dtype":"U8","shape":[1],"data_offsets":[0,3]}}}}'.encode()
    assert told(tmp_path, "a.safetensors", struct.pack("<Q", len(header)) + header + b"xyz") is True


def test_a_header_of_safetensors_takes_little_memory(tmp_path: Path) -> None:
    header = b'{"a":[' + b'{"":[]},' * 1_000_000 + b"0]}"
    tracemalloc.start()
    try:
        assert told(tmp_path, "a.safetensors", struct.pack("<Q", len(header)) + header) is True
        assert tracemalloc.get_traced_memory()[1] < 5 * len(header)
    finally:
        tracemalloc.stop()
