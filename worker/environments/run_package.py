"""The part of this package that a program in any environment imports: `torchyard.run`, alone in a folder.

It needs nothing but the standard library, from Python 3.10 on.
"""

import importlib.util
from pathlib import Path
import shutil

_PARTS = ("contract", "host", "integrations", "run", "states")
_FILES = ("__init__.py", "py.typed")


def write(folder: Path) -> None:
    """Makes the folder, which does not exist yet. Raises OSError."""
    spec = importlib.util.find_spec("torchyard")
    assert spec is not None
    assert spec.origin is not None
    source, package = Path(spec.origin).parent, folder / "torchyard"
    package.mkdir(parents=True)
    for name in _FILES:
        shutil.copyfile(source / name, package / name)
    for name in _PARTS:
        shutil.copytree(source / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
