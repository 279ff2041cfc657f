"""The type checker of `make check` sees the kinds of errors that people make every day."""

from collections import defaultdict
import json
from pathlib import Path
import re
import subprocess
import sys

ROOT = Path(__file__).parents[1]
PLANTED = (ROOT / "tests" / "planted_types.txt").read_text()


def test_each_planted_error_is_found_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "planted.py"
    file.write_text(PLANTED)
    (tmp_path / "other.py").write_text("class Other:\n    _secret: int = 1\n")
    command = [Path(sys.executable).with_name("pyrefly"), "check", "--config", ROOT / "pyproject.toml"]
    options = ["--search-path", tmp_path, "--output-format", "json", "--min-severity", "error"]
    found = subprocess.run(
        [*command, *options, file], check=False, cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    kinds: dict[int, list[str]] = defaultdict(list)
    for error in json.loads(found.stdout)["errors"]:
        kinds[error["line"]].append(error["name"])
    lines = enumerate(PLANTED.splitlines(), 1)
    planted = {number: [wanted[1]] for number, line in lines if (wanted := re.search(r"  # ([a-z-]+)$", line))}
    assert kinds == planted
