"""The names of keys and channels in Redis. They begin with the service's id: several services may share one Redis."""


def queue(service: str) -> str:
    """The sorted set of the queued jobs."""
    return f"torchyard:{service}:queue"


def wakeups(service: str) -> str:
    """The channel that wakes the workers."""
    return f"torchyard:{service}:wakeups"


def changes(service: str) -> str:
    """The channel on which every commit publishes what it has changed: ids of jobs, and names of other things."""
    return f"torchyard:{service}:changes"
