"""Bundles for tests: tars of some files, and requests that upload them."""

from dataclasses import dataclass
import hashlib
from random import Random

from httpx2 import Response
from starlette.testclient import TestClient

from torchyard.contract.bundles.tar import END, header, padding


@dataclass(frozen=True)
class Packed:
    """The tar of a bundle."""

    tar: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.tar).hexdigest()

    @property
    def url(self) -> str:
        return f"/v1/bundles/{self.sha256}"

    def params(self, *, offset: int = 0) -> dict[str, int]:
        return {"offset": offset, "size": len(self.tar)}


def packed(*, seed: int = 0, size: int = 3000) -> Packed:
    """Returns a bundle of three files of about `size` bytes together, which do not compress."""
    random = Random(seed)
    return packed_files({name: random.randbytes(size // 3) for name in ("a.py", "lib/b.py", "lib/ü.txt")})


def packed_files(files: dict[str, bytes]) -> Packed:
    """Returns a bundle of these files, whose names are sorted."""
    parts = [header(name, size=len(data), executable=False) + data + padding(len(data)) for name, data in files.items()]
    return Packed(b"".join(parts) + END)


def upload(client: TestClient, bundle: Packed, *, offset: int = 0, to: int | None = None) -> Response:
    """Sends the bytes of the bundle from `offset` up to `to`."""
    return client.put(bundle.url, params=bundle.params(offset=offset), content=bundle.tar[offset:to])


def upload_whole(client: TestClient, bundle: Packed) -> None:
    answer = upload(client, bundle)
    assert answer.status_code == 201, answer.text
