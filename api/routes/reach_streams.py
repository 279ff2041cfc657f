"""The WebSocket at which the two ends of a reach meet. It needs no token: both prove that they know its secret."""

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from api.reaches.joining import join
from api.services import Services
from store.ids import is_id

_PATH = "/v1/reaches/{reach_id}/stream"
_MOST_DIGITS = 9


async def stream_reach(websocket: WebSocket) -> None:
    """Passes bytes between a client and what runs for it in a job."""
    services: Services = websocket.app.state.services
    reach_id, meeting = websocket.path_params["reach_id"], websocket.query_params.get("meeting", "")
    end = websocket.query_params.get("end", "")
    await websocket.accept()
    is_right = is_id(reach_id, "rch") and meeting.isascii() and meeting.isdecimal() and len(meeting) <= _MOST_DIGITS
    if not is_right or end not in {"client", "worker"}:
        await websocket.close(4400, "write ?meeting=NUMBER&end=client")
        return
    await join(websocket, services, reach_id, meeting=int(meeting), end="client" if end == "client" else "worker")


routes = [WebSocketRoute(_PATH, stream_reach, name="stream_reach")]
