"""The digest of a base, which rank 0 alone computes."""

from typing import Any

from torchyard.contract.errors import DataError
from torchyard.models.base import Base
from trainer.data.scanning import Scan


def digest_of(base: Base, scan: Scan) -> str:
    """Returns the digest of a base. All its weights are read, by rank 0. A collective.

    Raises DataError, on all ranks, if a rank finds a base there that has other names, sizes or settings than rank 0's.
    """

    def read() -> dict[str, Any]:
        return {"digest": base.hashed(lambda: scan.reads(f"reads {base.folder} for its digest")), **_outline(base)}

    base_facts = scan.share(read)
    if scan.world is None or scan.world.size == 1:
        return base_facts["digest"]
    if scan.world.any(any(base_facts[key] != value for key, value in _outline(base).items())):
        raise DataError(
            f"{base.field}: the ranks find different bases in {base.folder}: copy the same one to all hosts"
        )
    return base_facts["digest"]


def _outline(base: Base) -> dict[str, Any]:
    return {"read": dict(base.read), "sizes": base.files.sizes}
