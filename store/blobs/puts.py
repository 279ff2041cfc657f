"""Blobs that have names in the store before a row names them: none of them may be removed in between.

Who publishes asks for the time first, publishes, and checks in the transaction that names the blobs whether one of them
was removed since. So there is nothing to release, and who is killed leaves nothing that keeps others from removing.
"""

from collections.abc import Iterable
from datetime import timedelta

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from store.blobs.facts import Put
from store.blobs.turns import share_turn
from store.db.database import in_us, now_us
from store.tables import RemovedBlob
from torchyard.contract.errors import Conflict

_MOST_WAIT = timedelta(hours=12)
"""Who names a blob later than this publishes it again. Removals are remembered for longer."""


def begin(session: Session, blobs: Iterable[str]) -> Put:
    """Returns what `check` needs of blobs that are published after this."""
    return Put(frozenset(blobs), session.scalars(select(now_us())).one())


def check(session: Session, put: Put) -> None:
    """Call it first in the transaction that names the blobs.

    Raises Conflict if one of them may have been removed since it was published: then they are published again.
    """
    if not put.blobs:
        return
    share_turn(session)
    gone = exists().where(RemovedBlob.sha256.in_(put.blobs), RemovedBlob.removed_by >= put.began_at)
    now, is_gone = session.execute(select(now_us(), gone)).one()
    if is_gone or now > put.began_at + in_us(_MOST_WAIT):
        raise Conflict("a file may have been removed while it was stored: store it again")
