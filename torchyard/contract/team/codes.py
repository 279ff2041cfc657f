"""The codes by which a box becomes a worker, or a laptop logs in: what an administrator hands over, and one pastes."""

from dataclasses import dataclass
import re
from typing import Literal, get_args

from torchyard.contract.errors import InvalidRequest

CodeKind = Literal["worker", "user"]
"""Who joins by a code: a machine that runs jobs, or a user, whose command line logs in."""
CODE_SECRET = r"^[A-Za-z0-9_-]{32}$"  # noqa: S105 - a pattern
_OF_AUTHORITY = "ca"
_CODE = re.compile(r"(worker|user)\.(ca|[0-9a-f]{64})\.([A-Za-z0-9_-]{32})")


@dataclass(frozen=True)
class JoinCode:
    """A code, as its text says it. The service knows a digest of the secret alone, which is all that it is sent."""

    kind: CodeKind
    fingerprint: str | None
    """The SHA-256 of the service's certificate, in hex. None: an authority has given it one, and may renew it."""
    secret: str

    @property
    def text(self) -> str:
        return f"{self.kind}.{self.fingerprint or _OF_AUTHORITY}.{self.secret}"


def parse_code(text: str) -> JoinCode:
    """Returns what a code says. Raises InvalidRequest, whose message does not repeat it."""
    found = _CODE.fullmatch(text.strip())
    if found is None:
        raise InvalidRequest(
            f"this is not a code of Torchyard: it has {len(text.strip())} characters, and one is "
            f"{'|'.join(get_args(CodeKind))}, a dot, 64 digits or `ca`, a dot, and 32 characters. "
            "Copy all of the line"
        )
    fingerprint = None if found[2] == _OF_AUTHORITY else found[2]
    return JoinCode("worker" if found[1] == "worker" else "user", fingerprint, found[3])
