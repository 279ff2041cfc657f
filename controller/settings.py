"""The settings of a controller: `TORCHYARD_*` variables, with defaults for one laptop."""

from controller.notifications.settings import NotificationSettings
from store import settings


class Settings(NotificationSettings, settings.Settings):
    """Where the data is, and how notifications are sent. Extends `store.settings.Settings`."""
