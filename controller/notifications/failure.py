"""Why a message was not delivered."""


class NotDelivered(Exception):
    """The message for the owner of the target."""

    def __init__(self, message: str, *, final: bool = False, retry_after_s: float | None = None) -> None:
        """`final`: whether trying again is no use. `retry_after_s`: what the receiver asks to wait, in seconds."""
        super().__init__(message)
        self.message = message
        self.final = final
        self.retry_after_s = retry_after_s
