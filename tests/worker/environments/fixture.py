"""Environments as conda and venv leave them, with no more in them than what is read."""

import json
from pathlib import Path
import sys

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"


def make_conda(
    folder: Path,
    *,
    python: str = "3.10.13",
    torch: str | None = "2.1.2",
    cuda: str | None = "12.1",
    numpy: str = "1.26",
) -> Path:
    """Makes what conda leaves on the disk of an environment."""
    site = folder / "lib" / f"python{python.rpartition('.')[0]}" / "site-packages"
    for made in (folder / "bin", folder / "conda-meta", site / "numpy"):
        made.mkdir(parents=True, exist_ok=True)
    (folder / "bin" / "python").touch()
    (folder / "conda-meta" / f"python-{python}-h955ad1f_0_cpython.json").write_text("{}")
    (folder / "conda-meta" / f"numpy-{numpy}-py310_0.json").write_text("{}")
    (folder / "conda-meta" / "python_abi-3.10-4_cp310.json").write_text("{}")
    if torch is not None:
        (site / "torch").mkdir(exist_ok=True)
        lines = [f"__version__ = '{torch}'", "debug = False", f"cuda: Optional[str] = {cuda!r}", "hip = None"]
        (site / "torch" / "version.py").write_text("\n".join(lines))
    return folder


def set_script(folder: Path, name: str, text: str) -> None:
    """Adds a script that conda would run when it activates the environment."""
    scripts = folder / "etc" / "conda" / "activate.d"
    scripts.mkdir(parents=True, exist_ok=True)
    (scripts / name).write_text(text)


def set_variables(folder: Path, values: dict[str, str]) -> None:
    """Does what `conda env config vars set` does."""
    (folder / "conda-meta" / "state").write_text(json.dumps({"env_vars": values}))
