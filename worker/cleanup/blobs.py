"""Removes what removed checkpoints, unfinished copies and unused bundles have left in the folder of blobs."""

from datetime import timedelta
import logging

from store import housekeeping
from store.blobs import uploads
from store.bundles import library as bundles
from store.store import Store

_BLOBS_PER_CALL = 50

logger = logging.getLogger(__name__)


def remove_unreferenced_blobs(store: Store) -> None:
    """Removes blobs that nothing refers to, and the remains of copies that are a day old. Raises Unavailable."""
    try:
        removed = housekeeping.collect_garbage(store, limit=_BLOBS_PER_CALL)
        store.blobs.remove_abandoned()
        uploads.remove_abandoned(store.blobs)
    except OSError as error:
        logger.warning("cannot remove blobs: %s", error)
        return
    if removed:
        logger.info("deleted %d unreferenced blobs", removed)


def remove_unused_bundles(store: Store, *, age: timedelta | None) -> None:
    """Removes bundles that nobody used for `age` (None: none), and abandoned uploads. Raises Unavailable."""
    try:
        removed = bundles.remove_unused(store, age=age)
    except OSError as error:
        logger.warning("cannot remove abandoned uploads: %s", error)
        return
    if removed:
        logger.info("deleted %d unused bundles", removed)
