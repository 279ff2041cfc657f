"""Calls about reaches: the shells, commands and forwards of a user into a running job."""

from torchyard.client.calls.call import JSON, Call, job_path, segment
from torchyard.contract.reach.orders import Order
from torchyard.contract.reach.views import OpenedReachView
from torchyard.contract.wire.view import View


def open_reach(job_id: str, order: Order) -> Call[OpenedReachView]:
    path = f"{job_path(job_id)}/reaches"
    return Call(OpenedReachView, "POST", path, content=order.to_json(), headers=JSON, repeatable=False)


def meet_again(reach_id: str) -> Call[OpenedReachView]:
    return Call(OpenedReachView, "POST", f"{_path(reach_id)}/meetings")


def end_reach(reach_id: str) -> Call[View]:
    return Call(View, "DELETE", _path(reach_id))


def _path(reach_id: str) -> str:
    return f"/v1/reaches/{segment(reach_id)}"
