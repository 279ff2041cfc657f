"""The largest contents of people, jobs and strangers, for `bench.costs.cases`."""

from collections.abc import Callable
import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import torch

from store.bundles.checking import APART_BYTES
from torchyard.contract.attempts.events import Metric
from torchyard.contract.bundles.names import MAX_BUNDLE_FILES
from torchyard.contract.bundles.parts import MOST_PARTS_ASKED, shared_parts
from torchyard.contract.bundles.shards import Entry, Index, index_lines, parse_index
from torchyard.contract.bundles.tar import header, verify
from torchyard.contract.media.data import media_data
from torchyard.contract.media.kinds import DATA_BYTES, PICTURE_BYTES, MediaKind
from torchyard.contract.media.picture import picture_of
from torchyard.contract.spec.environment import MOST_SECRETS_BYTES
from torchyard.contract.spec.spec import MOST_SPEC_BYTES, parse_spec
from torchyard.models import amounts
from worker.curves import finding
from worker.curves.brought import Brought
from worker.host.mask import Mask

Prepare = Callable[[], object]


def spec() -> Prepare:
    raw = {"trainer": "script", "config": {"code": "file:///x", "args": ["x" * 20] * 9_000}, "env": {}}
    raw["env"] = {f"V{number}": "x" * 100 for number in range(200)}
    assert len(json.dumps(raw)) < MOST_SPEC_BYTES
    return lambda: parse_spec(raw)


def picture() -> Prepare:
    segment = b"\xff\xe1\x00\x02"  # the shortest, so that there are as many as can be
    content = b"\xff\xd8\xff" + b"\xe1\x00\x02" + segment * ((PICTURE_BYTES - 8) // len(segment))
    return lambda: picture_of(content)


def media() -> Prepare:
    rows = [[0.5] * 100 for _ in range(DATA_BYTES // 400)]
    values = {"columns": [f"c{number}" for number in range(100)], "rows": rows}
    return lambda: media_data(MediaKind.TABLE, values)


def event() -> Prepare:
    line = Metric(time=1, step=1, values={f"key/{number:04}" + "x" * 180: 0.5 for number in range(1000)}).to_json()
    return lambda: Metric.from_json(line)


def small_bundle() -> Prepare:
    """Checks a tar of empty files, of the largest size that a thread of the API checks itself."""
    return _bundle(APART_BYTES // 512 - 2)


def bundle() -> Prepare:
    return _bundle(MAX_BUNDLE_FILES)


def _bundle(files: int) -> Prepare:
    file = TemporaryFile()  # noqa: SIM115 - it is closed with its process
    for number in range(files):
        file.write(header(f"{number:06}/" + "x" * 90, size=0, executable=False))
    file.write(bytes(1024))
    file.seek(0)
    return lambda: verify(file, needs_parts=True)


def parts() -> Prepare:
    digests = [hashlib.sha256(b"%d" % number).digest() for number in range(65_536)]
    stored = [("x", b"".join(digest + bytes(4) for digest in digests))]
    return lambda: shared_parts(digests[: 2 * MOST_PARTS_ASKED : 2], stored)


def index() -> Prepare:
    entries = [Entry(0, f"{number:06}.png", 512 + 1024 * number, 100) for number in range(100_000)]
    lines = [*index_lines(Index({"a.tar": 1 << 30}, entries))]
    return lambda: parse_index(lines, where="the index")


def values_beside_weights() -> Prepare:
    values = {"classes": [str(number) for number in range(amounts.MOST_VALUES - 10)]}
    return lambda: amounts.check_metadata(values, what="a checkpoint")


def tensors() -> Prepare:
    weights = {f"layer.{number}": torch.zeros(1) for number in range(100_000)}
    return lambda: amounts.check_weights(weights, size=10**9, what="a checkpoint")


def event_files() -> Prepare:
    folder = TemporaryDirectory()  # it is removed with its process
    for number in range(500):
        inner = Path(folder.name) / str(number)
        inner.mkdir()
        for file in range(100):
            (inner / f"{file}.tfevents.x").touch()
    return lambda: finding.find(Path(folder.name))


def event_files_before_the_start() -> Prepare:
    folder = TemporaryDirectory()
    for number in range(3000):
        inner = Path(folder.name) / str(number)
        inner.mkdir()
        (inner / "a.tfevents.x").write_bytes(b"x" * 5000 + str(number).encode())
    return lambda: Brought.found_in(Path(folder.name))


def secrets_in_a_table() -> Prepare:
    """What a job shows is masked: 8,000 cells, and as many lines of secrets as a job may have."""
    secret = "\n".join(f"{number:06}" + "s" * 10 for number in range(MOST_SECRETS_BYTES // 17))
    mask, cells = Mask([secret]), [f"{number:06}" for number in range(8_000)]
    return lambda: [mask.quoted(cell) for cell in cells]
