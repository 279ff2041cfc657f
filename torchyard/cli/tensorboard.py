"""Writes metrics as a file of events that TensorBoard opens, without TensorBoard or TensorFlow.

The file is a row of records (TFRecord), each with masked CRC-32C sums. A record is an `Event` in the encoding of
protocol buffers.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
import struct

from torchyard.contract.jobs.views import JobView
from torchyard.contract.telemetry.views import PointView, SeriesView

_POLYNOMIAL = 0x82F63B78
"""That of CRC-32C (Castagnoli), its bits reversed."""
_VERSION = b"brain.Event:2"
_DOUBLE, _TEXT, _FLOAT = 1, 2, 5
"""Wire types of protocol buffers."""


def write_events(folder: Path, job: JobView, series: Iterable[SeriesView]) -> Path:
    """Writes all points of a job's series into a file of the folder, and returns its path. Raises OSError.

    The same job gets the same file, which is replaced.
    """
    path = folder / f"events.out.tfevents.{round(job.created_at.timestamp())}.{job.id}"
    points = sorted(((point, item.key) for item in series for point in item.points), key=lambda pair: pair[0].time)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    with temporary.open("wb") as file:
        file.writelines(_records(job, points))
    temporary.replace(path)
    return path


def record(data: bytes) -> bytes:
    """Returns one record of the file."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def masked_crc(data: bytes) -> int:
    """Returns the CRC-32C of the data, masked as TFRecord does it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _records(job: JobView, points: Iterable[tuple[PointView, str]]) -> Iterator[bytes]:
    yield record(_time(job.created_at.timestamp()) + _text(3, _VERSION))
    for point, key in points:
        value = _text(1, key.encode()) + _key(2, _FLOAT) + struct.pack("<f", _single(point.value))
        step = _key(2, 0) + _varint(point.step)
        yield record(_time(point.time.timestamp()) + step + _text(5, _text(1, value)))


def _single(value: float) -> float:
    """Returns what a float of 32 bits can hold: infinity for a larger number."""
    try:
        struct.pack("<f", value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return value


def _time(seconds: float) -> bytes:
    return _key(1, _DOUBLE) + struct.pack("<d", seconds)


def _text(field: int, data: bytes) -> bytes:
    return _key(field, _TEXT) + _varint(len(data)) + data


def _key(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _varint(number: int) -> bytes:
    number &= 0xFFFFFFFFFFFFFFFF  # a negative number has all 64 bits
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def _table() -> list[int]:
    table: list[int] = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _table()
