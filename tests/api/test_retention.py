"""Lists and streams of a job whose old lines and events were removed."""

from datetime import timedelta

from store import housekeeping as cleanup
from store.output.facts import NewEvent, NewLines, TrimLimits
from tests.api.service import ApiFixture
from tests.api.test_stream import parsed
from tests.approved import Approved
from tests.store.fixture import store_on
from torchyard.contract.states import EndReason


def stream(service: ApiFixture, job_id: str, after: int) -> list[tuple[int, str]]:
    answer = service.client.get(f"/v1/jobs/{job_id}/stream", headers={"Last-Event-ID": str(after)})
    assert answer.status_code == 200, answer.text
    return [(item.id, item.event) for item in parsed(answer.content)]


def test_lists_and_streams_skip_what_retention_removed(service: ApiFixture, approved: Approved) -> None:
    claim = service.start(service.submit()["id"])
    path = f"/v1/jobs/{claim.job_id}"
    for number in range(10):
        progress = NewEvent("progress", {"step": number}, 1)
        service.record(claim, lines=[NewLines(0, "stdout", [f"line {number}"] * 3)], events=[progress])
    service.end(claim, reason=EndReason.COMPLETED)
    page = service.get(f"{path}/logs", limit=4)
    whole = stream(service, claim.job_id, 0)
    # The reader's cursor points at lines that are removed now.
    for _ in cleanup.trim_finished_jobs(store_on(service.database), TrimLimits(log_bytes=59, events=timedelta())):
        pass
    assert [line["line"] for line in service.get(f"{path}/logs", limit=3)["data"]] == [25, 26, 27]
    assert [line["line"] for line in service.get(f"{path}/logs", tail=1000)["data"]] == list(range(25, 31))
    following = service.get(f"{path}/logs", limit=4, after=page["next"])
    assert [line["line"] for line in following["data"]] == [25, 26, 27, 28]
    messages = [event["data"]["text"] for event in service.get(f"{path}/events")["data"] if event["type"] == "message"]
    assert [message.partition(":")[0] for message in messages] == [
        approved("message"),
        f"events of its attempts up to number {whole[-3][0]} were removed",
    ]
    end = whole[-1][0]
    said = [(end + 1, "message"), (end + 2, "message"), (end + 2, "end")]
    kept = [item for item in whole[:-1] if item[1] == "state" or (item[1] == "log" and item[0] >= end - 8)]
    for cursor in (1, 7, 20, end - 8, end - 5, end):
        assert stream(service, claim.job_id, cursor) == [*(item for item in kept if item[0] > cursor), *said]
