"""The files of events that TensorBoard opens, byte by byte."""

from collections.abc import Iterator
import json
import math
from pathlib import Path
import struct
from typing import Any

from tests.torchyard.client.answers import NOW, job
from torchyard.cli.tensorboard import masked_crc, record, write_events
from torchyard.contract.jobs.views import JobView
from torchyard.contract.telemetry.views import SeriesView

VERSION = bytes.fromhex("18000000 00000000 a37f4b22 09 0000000000000000 1a0d") + b"brain.Event:2"
"""How every file of TensorFlow and TensorBoard begins, with the time 0."""


def test_the_sums_are_those_of_the_standard() -> None:
    crc = 0xE3069283  # the check value of CRC-32C, which is that of b"123456789"
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_record_has_the_bytes_that_tensorflow_writes() -> None:
    written = record(VERSION[12:])
    assert written[:-4] == VERSION
    assert len(written) == 8 + 4 + 24 + 4


def test_a_file_has_the_version_and_then_each_point_in_the_order_of_time(tmp_path: Path) -> None:
    early, late = NOW, "2026-01-02T03:04:06.500Z"
    points = [(1, 0.5, early), (300, "NaN", late), (2**40, 1e300, late)]
    views = [{"step": step, "value": value, "time": time, "attempt": 1} for step, value, time in points]
    series = [SeriesView.model_validate({"key": "val/lóss", "points": views[1:]})]
    series.append(SeriesView.model_validate({"key": "a", "points": views[:1]}))
    path = write_events(tmp_path / "new" / "folder", JobView.model_validate_json(json.dumps(job())), series)
    version, *found = map(dict, map(_fields, _records(path.read_bytes())))
    assert version[3] == b"brain.Event:2"
    assert [event[2] for event in found] == [1, 300, 2**40]
    assert [event[1] for event in found] == [1767323045.0, 1767323046.5, 1767323046.5]
    values = [dict(_fields(dict(_fields(event[5]))[1])) for event in found]
    assert [value[1].decode() for value in values] == ["a", "val/lóss", "val/lóss"]
    assert values[0][2] == 0.5 and math.isnan(values[1][2]) and math.isinf(values[2][2])
    assert path.name == "events.out.tfevents.1767323045.job_1"


def _records(data: bytes) -> Iterator[bytes]:
    """Yields the records of a file, whose sums it checks."""
    while data:
        size, crc = struct.unpack_from("<QI", data)
        found, (sum_of_data,) = data[12 : 12 + size], struct.unpack_from("<I", data, 12 + size)
        assert (crc, sum_of_data) == (masked_crc(data[:8]), masked_crc(found))
        yield found
        data = data[16 + size :]


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yields the number and the value of each field of a message."""
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte, at = data[at], at + 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(data):
        key = varint()
        match key & 7:
            case 0:
                yield key >> 3, varint()
            case 1:
                yield key >> 3, struct.unpack_from("<d", data, at)[0]
                at += 8
            case 5:
                yield key >> 3, struct.unpack_from("<f", data, at)[0]
                at += 4
            case _:
                size = varint()
                yield key >> 3, data[at : at + size]
                at += size
