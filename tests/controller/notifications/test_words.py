"""What people are told of a message."""

from controller.notifications.channels import words_of
from tests.approved import Approved


def test_a_message_says_what_happened_why_and_where_to_look(approved: Approved) -> None:
    data = {"title": "job digits failed", "text": "rank 1:\r\n boom", "job": {"id": "job_1", "name": "digits"}}
    found = words_of({"type": "job.failed", "data": data}, public_url="https://a.example/yard")
    assert found.text == approved("text")
    assert found.link == "https://a.example/yard/jobs/job_1"


def test_a_digest_lists_what_was_left_out() -> None:
    items = [{"type": "job.failed", "title": "job a failed"}, {"type": "job.succeeded", "title": "job b succeeded"}]
    data = {"title": "70 more messages", "text": "70 job.failed", "items": items}
    found = words_of({"type": "digest", "data": data}, public_url="https://a.example")
    assert found.text.splitlines() == ["70 more messages", "70 job.failed", "job a failed", "job b succeeded"]
    assert found.link == "https://a.example/"


def test_without_an_address_of_the_service_there_is_no_link() -> None:
    assert words_of({"data": {"title": "a", "text": "", "sweep": {"id": "swp_1"}}}, public_url="").link is None
