"""Files in folders of data that nobody means: hidden ones, and what desktops, archives and network disks leave."""

_LEFT_BY_PROGRAMS = frozenset(
    {
        *("__macosx", "icon\r"),
        *("thumbs.db", "ehthumbs.db", "desktop.ini", "$recycle.bin", "system volume information"),
        *("@eadir", "lost+found"),
    }
)


def is_hidden(name: str) -> bool:
    """Returns whether a file or a folder of this name is no part of the data."""
    return name.startswith(".") or name.casefold() in _LEFT_BY_PROGRAMS
