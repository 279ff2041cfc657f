"""Where the imports of a script are looked for: beside it, in the root of its code, in `src` and in PYTHONPATH."""

import os
from pathlib import Path
import sys

SOURCES = "src"


def extend_path() -> None:
    """Extends `sys.path` as of a shell with PYTHONPATH, in the root of a project that is installed there.

    Folders of PYTHONPATH come first, also in a fork of a process that was started without. The root and `src` come
    last, so that nothing there takes the place of what is installed.
    """
    first = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = [path for path in first if path not in sys.path]
    own = str(Path(__file__).parents[2])
    at = len(sys.path) - (sys.path[-1:] == [own])  # in an environment without our packages they stay the last ones
    root = str(Path.cwd())
    sys.path[at:at] = [path for path in (root, os.path.join(root, SOURCES)) if _is_new(path)]  # noqa: PTH118 as texts


def _is_new(path: str) -> bool:
    return path not in sys.path and os.path.isdir(path)  # noqa: PTH112 as above
