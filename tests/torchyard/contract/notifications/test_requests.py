"""Where messages are sent: what a target may be."""

from typing import Any

import pytest

from tests.approved import Approved
from torchyard.contract.errors import InvalidRequest
from torchyard.contract.notifications.requests import NewTarget
from torchyard.contract.wire.schema import parse_request

HOOK = {"name": "hook", "kind": "webhook", "address": "https://example.com/"}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another protocol": ({"address": "ftp://example.com/"}, ""),
    "a password": ({"address": "https://user:pass@example.com/"}, ""),
    "a line end": ({"address": "https://exa\nmple.com/"}, ""),
    "half a bracket": ({"address": "https://[::1/"}, ""),
    "a header": ({"kind": "mail", "address": "a@example.com\nBcc: b@example.com"}, ""),
    "two addresses": ({"kind": "mail", "address": "a@example.com,b@example.com"}, ""),
    "a name": ({"kind": "mail", "address": "Ada <a@example.com>"}, ""),
    "an unknown kind": ({"kind": "browser"}, "kind"),
    "a space": ({"name": "a b"}, "name"),
    "no event": ({"on": []}, "on"),
    "an unknown event": ({"on": ["job.exploded"]}, "on.0"),
    "an event of all": ({"on": ["worker.lost"]}, ""),
    "an own secret": ({"secret": "whsec_mine"}, "secret"),
}


@pytest.mark.parametrize(("changes", "field"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_target_is_named(changes: dict[str, Any], field: str, approved: Approved) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_request(NewTarget, HOOK | changes)
    (error,) = raised.value.errors
    assert (error.field, error.message) == (field, approved.of_row("message"))
