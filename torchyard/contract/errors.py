"""The errors of Torchyard: one tree, each class with a stable `code`. The API renders them in one place."""

from collections.abc import Iterator
from dataclasses import dataclass
from traceback import clear_frames
from typing import ClassVar, TypeVar

E = TypeVar("E", bound=BaseException)


@dataclass(frozen=True)
class FieldError:
    """An error in one field of the request."""

    field: str
    message: str


class TorchyardError(Exception):
    """The root of all errors. `code` never changes; `status` is the HTTP status of the API's answer."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"

    retry_after: int | None = None
    """Seconds after which the same request may succeed; None if that is not known."""

    def __init__(self, message: str, *, errors: tuple[FieldError, ...] = (), retry_after: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.errors = errors
        if retry_after is not None:
            self.retry_after = retry_after


class InvalidSpec(TorchyardError):
    """The job spec is not valid. `errors` names each field."""

    code = "invalid_spec"
    status = 422
    title = "The job spec is not valid"


class InvalidRequest(TorchyardError):
    """A parameter is out of range, or the body is not JSON. `errors` names each parameter."""

    code = "invalid_request"
    status = 422
    title = "The request is not valid"


class InvalidBundle(TorchyardError):
    """The uploaded file is not a bundle. The message says what is wrong and where."""

    code = "invalid_bundle"
    status = 422
    title = "The bundle is not valid"


class IdempotencyMismatch(TorchyardError):
    """The idempotency key was used for a different request."""

    code = "idempotency_mismatch"
    status = 422
    title = "The idempotency key belongs to another request"


class MalformedHttp(TorchyardError):
    code = "malformed_http"
    status = 400
    title = "The request is not valid HTTP"


class InvalidCursor(TorchyardError):
    code = "invalid_cursor"
    status = 422
    title = "The cursor is not one that this list gave"


class NotAuthorized(TorchyardError):
    code = "not_authorized"
    status = 401
    title = "A valid token is needed"


class SessionEnded(NotAuthorized):
    """The browser session has ended, or the request lacks `X-CSRF-Token`."""

    code = "session_ended"
    title = "The session has ended"


class Forbidden(TorchyardError):
    """Your role or token does not allow this."""

    code = "forbidden"
    status = 403
    title = "You may not do this"


class QuotaExceeded(TorchyardError):
    """Your quota does not allow this."""

    code = "quota_exceeded"
    status = 403
    title = "The quota is used up"

    may_pass = True
    """Whether the same request may be allowed later, although the quota and the request stay as they are."""


class OwnerDisabled(TorchyardError):
    """The owner of a sweep, a schedule or a waiting job may not submit jobs any more."""

    code = "owner_disabled"
    status = 403
    title = "The owner may submit no jobs"


class NotFound(TorchyardError):
    """The object does not exist, or you may not read it."""

    code = "not_found"
    status = 404
    title = "There is no such object"


class UnknownRoute(NotFound):
    """The service has no such route. The address is wrong, or the client and the service have different versions."""

    code = "unknown_route"
    title = "There is no such call"


class MethodNotAllowed(TorchyardError):
    code = "method_not_allowed"
    status = 405
    title = "The method is not possible here"


class RequestTimeout(TorchyardError):
    """The client was too slow to send its request."""

    code = "request_timeout"
    status = 408
    title = "The request did not arrive in time"


class Conflict(TorchyardError):
    """The state of the object forbids this."""

    code = "conflict"
    status = 409
    title = "The state of the object forbids this"

    received: int | None = None
    """Where an upload must continue: the bytes that the service has of it. None if this is not about an upload."""


class TooLarge(TorchyardError):
    """The request or the bundle is above a limit of the service."""

    code = "too_large"
    status = 413
    title = "The request body is too large"


class FileTooLarge(TorchyardError):
    """The file is too large to show."""

    code = "file_too_large"
    status = 413
    title = "The file is too large to be shown"


class UrlTooLong(TorchyardError):
    code = "url_too_long"
    status = 414
    title = "The URL is too long"


class NotText(TorchyardError):
    """The file is not UTF-8 text."""

    code = "not_text"
    status = 415
    title = "The file has no text"


class RangeNotSatisfiable(TorchyardError):
    code = "range_not_satisfiable"
    status = 416
    title = "The range lies beyond the end of the file"


class HostNotAllowed(TorchyardError):
    """The service does not answer to the name in `Host`."""

    code = "host_not_allowed"
    status = 421
    title = "The service does not answer to this name"


class TooManyRequests(TorchyardError):
    """You sent too many requests, or have too many open. Nothing was done; repeat it after `retry_after` seconds."""

    code = "too_many_requests"
    status = 429
    title = "There are too many requests"
    retry_after = 1


class HeadersTooLarge(TorchyardError):
    code = "headers_too_large"
    status = 431
    title = "The request's headers are too large"


class Unavailable(TorchyardError):
    """The database or another part does not answer. Repeat the request after `retry_after` seconds."""

    code = "unavailable"
    status = 503
    title = "A part of the service is not reachable"
    retry_after = 1


class NotMigrated(Unavailable):
    """The tables are missing, or older than this version needs."""


class StaleClaim(TorchyardError):
    """The attempt has ended, or another worker has taken it over. The caller must stop."""

    code = "stale_claim"
    status = 409
    title = "The attempt has ended"


class DataError(TorchyardError):
    """The data is missing, unreadable or not what the recipe expects. The job is not retried."""

    code = "data_error"
    status = 422
    title = "The data cannot be used"


class ConfigError(TorchyardError):
    """The configuration cannot work on this machine or with this data. The job is not retried."""

    code = "config_error"
    status = 422
    title = "The configuration cannot be used"


class ExportError(TorchyardError):
    """The model cannot be exported, or the exported file computes other logits."""

    code = "export_error"
    status = 422
    title = "The model cannot be exported"


class NonFiniteLoss(TorchyardError):
    """The loss or the gradient norm was NaN or infinite for too many consecutive steps."""

    code = "user_error"
    status = 422
    title = "The loss is not finite"


class ServerError(TorchyardError):
    """An answer of the service without a class of its own."""

    code = "server_error"
    status = 500
    title = "The service answered with an error"


class ServerUnreachable(TorchyardError):
    """The service is not known, or does not answer."""

    code = "unreachable"
    status = 503
    title = "The service cannot be reached"


def all_errors(root: type[TorchyardError] = TorchyardError) -> Iterator[type[TorchyardError]]:
    """Yields every class of the tree below `root`."""
    for kind in root.__subclasses__():
        yield kind
        yield from all_errors(kind)


def kept(error: E) -> E:
    """Returns the error as one that is kept: without its traceback, which holds what its functions had in memory."""
    error.__context__ = None
    return error.with_traceback(None)


def let_go(error: BaseException) -> None:
    """Empties the functions that have raised an error, once it is handled.

    They hold what they had in memory, such as a request's body, and the error, which holds them: only the garbage
    collector would find that, and nothing else runs while it looks for it.
    """
    found: BaseException | None = error
    while found is not None:
        clear_frames(found.__traceback__)
        found = found.__context__
    kept(error)
