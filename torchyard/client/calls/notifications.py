"""Calls about targets of notifications, and messages to them."""

import json
from typing import Any

from torchyard.client.calls.call import JSON, Call, bounded, given, segment
from torchyard.contract.notifications.views import MessageView, NewTargetView, TargetView
from torchyard.contract.wire.view import Page, View

_PATH = "/v1/notifications"


def targets(*, user: str | None) -> Call[Page[TargetView]]:
    return Call(Page[TargetView], "GET", f"{_PATH}/targets", {"user": user})


def add(**new: Any) -> Call[NewTargetView]:
    content = json.dumps(given(new))
    return Call(NewTargetView, "POST", f"{_PATH}/targets", content=content, headers=JSON, repeatable=False)


def change(target_id: str, **changes: Any) -> Call[TargetView]:
    return Call(TargetView, "PATCH", _path(target_id), content=json.dumps(given(changes)), headers=JSON)


def remove(target_id: str) -> Call[View]:
    return Call(View, "DELETE", _path(target_id), repeatable=False)


def send_test(target_id: str) -> Call[MessageView]:
    return Call(MessageView, "POST", f"{_path(target_id)}/test", repeatable=False)


def messages(*, target_id: str | None, user: str | None, limit: int | None) -> Call[Page[MessageView]]:
    params = {"target": target_id, "user": user, "limit": bounded(limit)}
    return Call(Page[MessageView], "GET", f"{_PATH}/messages", params)


def _path(target_id: str) -> str:
    return f"{_PATH}/targets/{segment(target_id)}"
