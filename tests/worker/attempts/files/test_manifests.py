"""A large manifest is parsed by another process, with the same outcome."""

import json
from typing import Any

import pytest

from torchyard.contract.attempts.records import Manifest
from torchyard.contract.errors import DataError
from torchyard.contract.files.paths import MOST_FILES
from torchyard.host.confined import Confined
from worker.attempts.files import manifests
from worker.attempts.files.manifests import LARGE_BYTES, manifest_of

SHA256 = "a" * 64


def manifest(*, files: int, **more: object) -> bytes:
    listed = [{"path": f"ä{'x' * 50}{number}", "size": number, "sha256": SHA256} for number in range(files)]
    return json.dumps({"step": 7, "metrics": {"loss": 1e-9}, "files": listed, **more}, ensure_ascii=False).encode()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the manifests that other processes have parsed."""
    sizes = list[int]()

    class Noted(Confined):
        def ask(self, question: bytes, **limits: Any) -> bytes:
            sizes.append(len(question))
            return super().ask(question, **limits)

    monkeypatch.setattr(manifests, "Confined", Noted)
    return sizes


@pytest.mark.parametrize("more", [{}, {"other": [[{}]] * 1000}])
def test_a_manifest_is_the_same_whichever_process_parses_it(asked: list[int], more: dict[str, Any]) -> None:
    for files in (1, MOST_FILES):
        text = manifest(files=files, **more)
        assert manifest_of(text) == Manifest.from_json(text)
    assert asked == [len(text)]


@pytest.mark.parametrize(
    "text", [b"[" * LARGE_BYTES, b'{"step":1,"files":[%s{}]}' % (b'{"":[]},' * 100_000), b'"\xff' + bytes(LARGE_BYTES)]
)
def test_a_large_one_that_is_wrong_is_refused_by_the_other_process(asked: list[int], text: bytes) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        manifest_of(text)
    assert asked == [len(text)]
    with pytest.raises(DataError, match="cannot be read"):
        manifest_of(text[:1000])
    assert asked == [len(text)]
