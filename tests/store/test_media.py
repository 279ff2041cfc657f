"""What runs show, in the store: what replaces what, the limits, and what becomes of the blobs."""

from io import BytesIO
from typing import Any

import pytest
from sqlalchemy import select, update

from store import housekeeping as cleanup
from store.attempts import append
from store.attempts.facts import Claim
from store.blobs.folder import BlobFolder
from store.output import artifacts, media
from store.output.facts import Batch, MediaFilter, MediaPosition, NewArtifact, NewMedia, OutputLimits, PictureFacts
from store.tables import Garbage, Job, Media
from store.team import quotas, users
from store.team.callers import SERVICE
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Resource, Role


@pytest.fixture
def claim(db: StoreFixture) -> Claim:
    return db.running(db.submit(), db.worker())


def picture(blobs: BlobFolder, content: bytes, *, step: int = 1, number: int = 0) -> NewMedia:
    blob = blobs.add(BytesIO(content))
    return NewMedia(
        "a", "image", step, number, pictures=[PictureFacts("image", "image/png", blob.size, blob.sha256, 1, 1)]
    )


def text(step: int, *, key: str = "t", content: str = "") -> NewMedia:
    return NewMedia(key, "text", step, 0, data={"text": content})


def record(db: StoreFixture, claim: Claim, *new: NewMedia, seq: int = 0, **limits: Any) -> frozenset[str]:
    batch = Batch(offsets={}, media=list(new))
    return db.write(lambda session: append.record(session, claim, batch, seq=seq, limits=OutputLimits(**limits)))


def steps(db: StoreFixture) -> list[int]:
    return db.read(lambda session: [*session.scalars(select(Media.step).order_by(Media.step))])


def events(db: StoreFixture, kind: str) -> list[dict[str, Any]]:
    return [row["data"] for row in db.everything()["job_events"] if row["type"] == kind]


def stored(blobs: BlobFolder) -> list[bytes]:
    return sorted(path.read_bytes() for path in blobs.root.glob("??/*"))


@quick_on_sqlite
def test_what_is_replaced_is_removed_unless_another_has_the_same_bytes(
    db: StoreFixture, blobs: BlobFolder, claim: Claim
) -> None:
    record(db, claim, picture(blobs, b"one"), picture(blobs, b"shared", number=1), picture(blobs, b"shared", number=2))
    record(db, claim, picture(blobs, b"two"), picture(blobs, b"three", number=1), picture(blobs, b"two"), seq=1)
    assert [row["number"] for row in db.everything()["media"]] == [2, 1, 0]
    cleanup.collect_garbage(store_on(db.database, blobs=blobs))
    assert stored(blobs) == [b"shared", b"three", b"two"]
    assert db.read(lambda session: session.scalars(select(Garbage.sha256)).all()) == []


def test_one_event_tells_of_the_items_of_a_key_in_a_batch(db: StoreFixture, claim: Claim) -> None:
    record(db, claim, *(text(step) for step in (3, 9, 6)), text(1, key="u"))
    assert events(db, "media") == [
        {"key": "t", "kind": "text", "step": 9, "count": 3},
        {"key": "u", "kind": "text", "step": 1, "count": 1},
    ]


@quick_on_sqlite
def test_a_job_stores_so_many_items_and_one_message_tells_of_the_others(
    db: StoreFixture, blobs: BlobFolder, claim: Claim, approved: Approved
) -> None:
    assert record(db, claim, *map(text, range(3)), media=4) == frozenset()
    again = [text(2, content="new"), text(3), picture(blobs, b"left out"), text(5)]
    assert record(db, claim, *again, seq=1, media=4) == {"media"}
    assert steps(db) == [0, 1, 2, 3]
    assert record(db, claim, text(9), seq=2, media=4) == {"media"}
    (told,) = events(db, "message")
    assert told["text"] == approved("text")
    cleanup.collect_garbage(store_on(db.database, blobs=blobs))
    assert stored(blobs) == []


@quick_on_sqlite
def test_an_item_of_a_later_attempt_replaces_one(db: StoreFixture, claim: Claim) -> None:
    record(db, claim, text(1, content="first"), text(2, content="first"))
    db.end(claim, EndReason.WORKER_LOST)
    db.write(lambda session: session.execute(update(Job).values(not_before=None)))
    later = db.claim(claim.job_id, db.worker("next"))
    assert later is not None
    record(db, later, text(2, content="second"), text(3, content="second"))
    found = {row["step"]: (row["attempt"], row["data"]["text"]) for row in db.everything()["media"]}
    assert found == {1: (1, "first"), 2: (2, "second"), 3: (2, "second")}


def test_items_count_among_the_bytes_of_artifacts(db: StoreFixture, blobs: BlobFolder, claim: Claim) -> None:
    left = NewArtifact("a", 600, "0" * 64)
    db.write(lambda session: artifacts.add(session, claim.job_id, attempt=1, new=[left]))
    assert record(db, claim, text(1, content="x" * 200), artifact_bytes=1200) == frozenset()
    assert record(db, claim, text(1, content="y" * 200), text(2, content="x" * 200), seq=1, artifact_bytes=1200) == {
        "media"
    }
    assert steps(db) == [1]
    room = db.read(lambda session: artifacts.read_room(session, claim.job_id))
    assert 400 < room.media_bytes < 500


@quick_on_sqlite
def test_a_page_ends_before_its_items_have_too_many_bytes(db: StoreFixture, claim: Claim) -> None:
    record(db, claim, *(text(step, content="x" * 60_000) for step in range(40)))
    where = MediaFilter([], (), None, None)
    first, _ = db.read(lambda session: media.list_media(session, claim.job_id, caller=SERVICE, where=where, limit=1000))
    assert (len(first.items), first.has_more) == (34, True)
    after = MediaPosition("t", first.items[-1].step, 0)
    rest, _ = db.read(
        lambda session: media.list_media(session, claim.job_id, caller=SERVICE, where=where, limit=1000, after=after)
    )
    assert ([item.step for item in rest.items], rest.has_more) == ([*range(34, 40)], False)


@quick_on_sqlite
def test_items_count_in_the_quota_of_their_owner(
    db: StoreFixture, blobs: BlobFolder, claim: Claim, approved: Approved
) -> None:
    db.write(lambda session: users.add(session, "ada", Role.MEMBER, caller=SERVICE))
    db.write(lambda session: quotas.set_limits(session, "user", "ada", {Resource.STORED_BYTES: 1200}, caller=SERVICE))
    assert record(db, claim, picture(blobs, b"x" * 600)) == frozenset()
    used = db.read(lambda session: quotas.stored_bytes(session, "ada"))
    assert 900 < used < 1100, "with its event"
    assert record(db, claim, picture(blobs, b"y" * 600, step=2), seq=1) == {"media"}
    assert events(db, "message")[0]["text"] == approved("text")
    assert record(db, claim, picture(blobs, b"z" * 500), seq=2) == {"media"}
    assert steps(db) == [1]
