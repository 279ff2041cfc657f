"""What the operations of a client have in common."""

from torchyard.client.connection import Connection
from torchyard.client.discovery import Server
from torchyard.client.transport import Transport


class Core:
    """Operations over a transport that does the I/O. They wait only in calls of the transport."""

    def __init__(self, server: Server, transport: Transport, *, patience: float) -> None:
        self.server = server
        self._transport = transport
        self._connection = Connection(server, transport, patience=patience)

    async def close(self) -> None:
        """Closes the connections."""
        await self._connection.close()
