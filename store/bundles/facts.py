"""What is known of bundles."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BundleFacts:
    """A complete bundle of one user. `size`: bytes of its tar."""

    owner: str
    sha256: str
    size: int
    files: int
    created_at: int
    name: str | None
