"""What jobs show over HTTP: the list, and the pictures."""

from io import BytesIO
from typing import Any

import pytest

from store.attempts.facts import Claim
from store.output.facts import NewMedia, PictureFacts
from tests.api.service import ApiFixture, both_databases, sha256
from tests.api.test_problems import assert_problem
from tests.rows import each_row

PICTURE, MASK = b"\x89PNG picture", b"\x89PNG mask"


def shown(service: ApiFixture, key: str, step: int, number: int = 0, **parts: bytes) -> NewMedia:
    """Returns an item with these pictures, whose bytes are in the blob store."""
    blobs = service.app.state.services.store.blobs
    pictures = [
        PictureFacts(part, "image/png", len(content), blobs.add(BytesIO(content)).sha256, 4, 3)
        for part, content in parts.items()
    ]
    kind = "overlay" if len(parts) > 1 else "image"
    return NewMedia(key, kind, step, number, caption="a photo", classes=["none", "crack"], pictures=pictures)


@pytest.fixture
def claim(service: ApiFixture) -> Claim:
    service.act_as("ada")
    return service.start(service.submit()["id"])


@pytest.fixture
def path(claim: Claim) -> str:
    return f"/v1/jobs/{claim.job_id}/media"


def keys_of(answer: dict[str, Any]) -> dict[str, Any]:
    return {key["key"]: [key["kind"], key["count"], key["steps"], key["numbers"]] for key in answer["keys"]}


@both_databases
def test_items_are_listed_by_key_step_and_number_in_pages(service: ApiFixture, claim: Claim, path: str) -> None:
    text = NewMedia("b", "text", 2, 0, data={"text": "a line", "expected": "two", "note": None})
    counts = NewMedia("c:0:ä", "histogram", 5, 0, data={"edges": [0.0, 1.0], "counts": [7]})
    pictures = [shown(service, "a", step, number, image=PICTURE) for step in (3, 1) for number in (1, 0)]
    service.record(claim, media=[text, *pictures, counts])
    whole = service.get(path)
    places = [(item["key"], item["step"], item["number"]) for item in whole["data"]]
    assert places == [("a", 1, 0), ("a", 1, 1), ("a", 3, 0), ("a", 3, 1), ("b", 2, 0), ("c:0:ä", 5, 0)]
    assert keys_of(whole) == {
        "a": ["image", 4, [1, 3], 2],
        "b": ["text", 1, [2], 1],
        "c:0:ä": ["histogram", 1, [5], 1],
    }
    assert whole["data"][4]["data"] == {"text": "a line", "expected": "two", "note": None}
    assert whole["data"][5]["data"]["counts"] == [7]
    pages: list[Any] = []
    after: dict[str, str] = {}
    while True:
        found = service.get(path, limit=1, **after)
        pages += found["data"]
        if not found["has_more"]:
            break
        after = {"after": found["next"]}
    assert pages == whole["data"]
    for query, wanted in {
        "key=b": ["b"],
        "kind=histogram&kind=text": ["b", "c:0:ä"],
        "from_step=3&to_step=4": ["a", "a"],
        "key=%EF%BF%BD": [],
    }.items():
        answer = service.client.get(f"{path}?{query}").json()
        assert [item["key"] for item in answer["data"]] == wanted
        assert answer["keys"] == whole["keys"]


def test_what_the_job_has_in_all_can_be_left_out(service: ApiFixture, claim: Claim, path: str) -> None:
    service.record(claim, media=[shown(service, "a", step, image=PICTURE) for step in (1, 2)])
    assert len(service.get(path, limit=1)["keys"]) == 1
    answer = service.get(path, limit=1, keys="false")
    assert (answer["keys"], answer["has_more"], answer["next"]) == ([], True, "1:0:a")
    assert_problem(service.client.get(path, params={"keys": "some"}), 422, "invalid_request")


@both_databases
def test_a_newer_item_of_the_same_place_replaces_one(service: ApiFixture, claim: Claim, path: str) -> None:
    service.record(claim, media=[shown(service, "a", 1, image=PICTURE)])
    before = service.get(path)["data"][0]
    twice = [shown(service, "a", 1, image=PICTURE), shown(service, "a", 1, image=PICTURE, truth=MASK)]
    service.record(claim, media=twice)
    (item,) = service.get(path)["data"]
    assert (item["kind"], [*item["parts"]], item["classes"]) == ("overlay", ["image", "truth"], ["none", "crack"])
    size = {"size": len(MASK), "sha256": sha256(MASK), "width": 4, "height": 3, "media_type": "image/png"}
    assert item["parts"]["truth"] == size
    assert_problem(service.client.get(f"{path}/{before['id']}/image"), 404, "not_found")
    events = service.get(f"/v1/jobs/{claim.job_id}/events")["data"]
    told = [event["data"] for event in events if event["type"] == "media"]
    assert told == [
        {"key": "a", "kind": "image", "step": 1, "count": 1},
        {"key": "a", "kind": "overlay", "step": 1, "count": 1},
    ]


def test_a_picture_is_sent_to_be_shown_and_kept(service: ApiFixture, claim: Claim, path: str) -> None:
    service.record(claim, media=[shown(service, "val/a b", 1, image=PICTURE, predicted=MASK)])
    (item,) = service.get(path)["data"]
    answer = service.client.get(f"{path}/{item['id']}/predicted")
    assert (answer.status_code, answer.content) == (200, MASK)
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert answer.headers["content-disposition"] == "inline; filename*=UTF-8''a%20b-predicted.png"
    assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert answer.headers["vary"] == "Authorization, Cookie"
    again = service.client.get(f"{path}/{item['id']}/predicted", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, answer.headers["etag"]) == (304, f'"{sha256(MASK)}"')
    for wrong in (f"{item['id']}/truth", f"med_{'0' * 32}/image", "%00/image", f"{item['id']}/image%00"):
        assert_problem(service.client.get(f"{path}/{wrong}"), 404, "not_found")


def test_pictures_are_sent_to_those_who_may_read_the_job(service: ApiFixture, claim: Claim, path: str) -> None:
    service.record(claim, media=[shown(service, "a", 1, image=PICTURE)])
    picture = f"{path}/{service.get(path)['data'][0]['id']}/image"
    other = f"/v1/jobs/{service.submit()['id']}/media/{picture.split('/')[-2]}/image"
    assert_problem(service.client.get(other), 404, "not_found")
    service.client.patch(f"/v1/jobs/{claim.job_id}", json={"visibility": "private"})
    service.act_as("bob")
    for hidden in (path, picture):
        assert_problem(service.client.get(hidden), 404, "not_found")


@each_row("cursor", ["a", "1:0:", ":0:a", "9223372036854775808:0:a", "1:00000:a", "1:0:a\n", "-1:0:a"])
def test_a_cursor_of_no_page_is_refused(service: ApiFixture, path: str, cursor: str) -> None:
    assert_problem(service.client.get(path, params={"after": cursor}), 422, "invalid_cursor")


def test_of_many_steps_a_thousand_are_named(service: ApiFixture, claim: Claim, path: str) -> None:
    service.record(claim, media=[NewMedia("t", "text", step, 0, data={"text": ""}) for step in range(1500)])
    (key,) = service.get(path, limit=1)["keys"]
    assert (key["count"], len(set(key["steps"])), key["steps"][0], key["steps"][-1]) == (1500, 1000, 0, 1499)
    assert key["steps"] == sorted(key["steps"])
