"""Variables of the worker that its operator gives to all jobs."""

import os
from pathlib import Path

from pydantic import ValidationError
import pytest

from tests.worker.attempt import Attempt
from torchyard.contract.states import EndReason
from worker.engines.local.environment import inherited
from worker.host import job_variables
from worker.packages.installation import install_environment
from worker.settings import Settings

TELLS = """
import os, resource
print(*(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "HF_ENDPOINT", "OTHER")))
print(open(os.environ["REQUESTS_CA_BUNDLE"]).read())
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
print(soft == hard)
"""


def test_a_list_gives_what_the_worker_has_and_proxies_in_both_cases() -> None:
    environ = {"HTTPS_PROXY": "http://proxy:3128", "HF_ENDPOINT": "https://hf", "OTHER": "x"}
    listed = environ | {job_variables.VARIABLE: "https_proxy, HF_ENDPOINT,ABSENT"}
    found = {"https_proxy": "http://proxy:3128", "HTTPS_PROXY": "http://proxy:3128", "HF_ENDPOINT": "https://hf"}
    assert job_variables.given(listed) == found
    assert job_variables.given(environ) == {}
    assert inherited(inherited(listed)) == inherited(listed)
    assert inherited(listed).items() >= found.items()
    assert install_environment(listed, index="").items() >= found.items()
    assert "OTHER" not in inherited(listed)


@pytest.mark.parametrize("names", ["TORCHYARD_TOKEN", "RANK", "LD_PRELOAD", "A B", "PATH,PYTHONPATH", "A=b"])
def test_no_setting_of_the_service_is_given_to_jobs(names: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        Settings(data_dir=tmp_path, job_variables=names)


def test_a_job_has_them_with_the_files_that_they_name_and_as_many_open_files_as_may_be(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorities = tmp_path / "authorities" / "own.pem"
    authorities.parent.mkdir()
    authorities.write_text("certificates")
    for name, value in {
        job_variables.VARIABLE: "https_proxy,HF_ENDPOINT,REQUESTS_CA_BUNDLE",
        "HTTPS_PROXY": "http://proxy:3128",
        "HF_ENDPOINT": "https://hf",
        "OTHER": "x",
        "REQUESTS_CA_BUNDLE": str(authorities),
    }.items():
        monkeypatch.setenv(name, value)
    attempt.stand_in = True
    attempt.start_job(TELLS, world_size=1, env={"HF_ENDPOINT": "https://own"})
    assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    assert attempt.log("rank-0", "stdout").splitlines() == [
        "http://proxy:3128 http://proxy:3128 https://own None",
        "certificates",
        "True",
    ]
    assert os.environ["OTHER"] == "x"
