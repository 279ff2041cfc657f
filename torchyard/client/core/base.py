"""What the operations of a client have in common."""

from torchyard.client.connection import Connection


class Core:
    """Operations over one connection. They wait only in calls of its transport."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
