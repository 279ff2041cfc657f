"""The names of keys and channels in Redis. They begin with the service's id: several services may share one Redis."""


def line(service: str) -> str:
    """What the keys of the line begin with."""
    return f"torchyard:{service}:line:"


def scratch(service: str) -> str:
    """A key that holds nothing, to ask what a user of Redis may do."""
    return f"torchyard:{service}:scratch"


def wakeups(service: str) -> str:
    """The channel that wakes the workers."""
    return f"torchyard:{service}:wakeups"


def controller(service: str) -> str:
    """The channel that wakes the controllers."""
    return f"torchyard:{service}:controller"


def changes(service: str) -> str:
    """The channel on which every commit publishes what it has changed: ids of jobs, and names of other things."""
    return f"torchyard:{service}:changes"


def access(service: str) -> str:
    """The channel on which those of them are published that change who may do what. They are few."""
    return f"torchyard:{service}:access"


def counts(service: str) -> str:
    """What the keys begin with that the API's processes count in together."""
    return f"torchyard:{service}:counts:"
