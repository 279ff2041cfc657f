"""Which blobs were removed of late, and who keeps all of them from being removed."""

from sqlalchemy import BigInteger, String
from sqlalchemy.orm import Mapped, mapped_column

from store.db.tables import Base


class RemovedBlob(Base):
    """A blob whose file somebody removes, or has removed in the last day: by `removed_by`, and not later.

    What was published before then may be gone: no transaction may name it.
    """

    __tablename__ = "removed_blobs"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    removed_by: Mapped[int] = mapped_column(BigInteger)


class BlobHold(Base):
    """Somebody copies all blobs, as a backup does: none is removed before `held_until`."""

    __tablename__ = "blob_holds"

    id: Mapped[int] = mapped_column(primary_key=True)
    held_until: Mapped[int] = mapped_column(BigInteger)
