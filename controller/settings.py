"""The settings of a controller: `TORCHYARD_*` variables, with defaults for one laptop."""

from store import settings


class Settings(settings.Settings):
    """Where the data is. Extends `store.settings.Settings`."""
