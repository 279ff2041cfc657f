"""What a job forges in its own records breaks nothing for others."""

import pytest

from tests.e2e.service import Service
from torchyard.contract.states import JobState

FORGES = """
import json, os, pathlib
error = {"rank": 0, "time": 1, "reason": "user_error", "type": "T", "message": "m", "traceback": "t"}
error |= json.loads(os.environ["FORGED"].replace("HUGE", "1" + "0" * 4200))
(pathlib.Path(os.environ["TORCHYARD_RUN_DIR"]) / "errors" / "0.json").write_text(json.dumps(error))
os._exit(3)
"""


@pytest.mark.parametrize(
    "forged",
    ['{"rank": HUGE}', '{"rank": -1}', '{"rank": 1}', '{"rank": NaN}', '{"time": HUGE}', '{"time": Infinity}'],
)
def test_a_forged_number_is_no_error_of_the_rank(service: Service, forged: str) -> None:
    job = service.submit_script("forges", FORGES, env={"FORGED": forged}, max_restarts=0)
    ended = service.wait(job.id, JobState.FAILED)
    assert ended.error is not None
    assert (ended.error.rank, ended.error.exit_code) == (0, 3)
    assert ended.error.message == "rank 0 exited with code 3"
    assert job.id in {item.id for item in service.client.jobs.list()}


def test_a_forged_text_is_cut(service: Service) -> None:
    text = FORGES.replace('"m"', '"m" * 200_000').replace('"t"', '"t" * 200_000')
    job = service.submit_script("long", text, env={"FORGED": '{"type": "T"}'}, max_restarts=0)
    ended = service.wait(job.id, JobState.FAILED)
    assert ended.error is not None
    assert ended.error.message == f"T: {'m' * 4_000}"
    assert ended.error.traceback == "t" * 33_000
