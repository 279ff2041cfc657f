"""Jobs over several nodes train as those of one node do."""

from pathlib import Path

import pytest

from tests.slurm.service import PARTITION, PoolService
from torchyard.contract.states import JobState

pytestmark = pytest.mark.slurm

EXAMPLE = Path(__file__).parents[2] / "examples/ddp.py"
LOSS = "train/loss"
WAITS = """
import os, time
if os.environ["TORCHYARD_ATTEMPT"] == "1" and step == 60:
    print("reached", flush=True)
    while not run.should_stop(): time.sleep(0.01)
"""


def test_ddp_has_the_same_curve_on_one_two_and_three_nodes(service: PoolService) -> None:
    text = EXAMPLE.read_text()
    jobs = {
        (nodes, devices): service.submit_script(f"ddp-{nodes}-{devices}", text, nodes=nodes, devices=devices).id
        for nodes, devices in ((1, 2), (2, 1), (3, 1), (1, 3))
    }
    for job_id in jobs.values():
        service.wait(job_id, JobState.SUCCEEDED)
    curves = {shape: service.curve(job_id, LOSS) for shape, job_id in jobs.items()}
    assert len(curves[1, 2]) == 200
    assert curves[2, 1] == curves[1, 2]
    assert curves[3, 1] == curves[1, 3] != curves[1, 2]


def test_a_recipe_has_the_same_curve_on_two_nodes_as_on_one(service: PoolService) -> None:
    curves: list[list[tuple[int, float]]] = []
    for nodes, devices in ((2, 1), (1, 2)):
        spec = {
            "trainer": "image-classification",
            "name": f"digits-{nodes}",
            "resources": {"nodes": nodes, "devices_per_node": devices, "pool": PARTITION},
            "env": {"OMP_NUM_THREADS": "1"},  # else a rank that has a node alone adds with more threads
            "config": {
                "data": {"source": "digits"},
                "training": {"epochs": 1, "deterministic": True},
                "logging": {"every_steps": 1},
            },
        }
        with service.client() as client:
            job = client.submit(spec).view
        service.wait(job.id, JobState.SUCCEEDED)
        curves.append(service.curve(job.id, LOSS))
    assert curves[0] == curves[1]


def test_a_pause_changes_nothing_on_two_nodes_and_one_node_goes_on_where_two_stopped(service: PoolService) -> None:
    whole = service.submit_script("whole", EXAMPLE.read_text()).id
    script = EXAMPLE.read_text().replace(
        "    stop = run.should_stop()\n", _indented(WAITS) + "    stop = run.should_stop()\n"
    )
    assert script != EXAMPLE.read_text()
    paused = service.submit_script("paused", script).id
    service.wait(whole, JobState.SUCCEEDED)
    service.wait(paused, JobState.RUNNING)
    service.until(lambda: service.lines(paused) == ["reached"] * 2, what="60 steps are done")
    with service.client() as client:
        client.jobs.pause(paused)
    service.wait(paused, JobState.PAUSED)
    with service.client() as client:
        client.jobs.download(paused, ref="latest", to=service.code / "latest.pt")
        client.jobs.resume(paused)
    service.wait(paused, JobState.SUCCEEDED)
    assert service.curve(paused, LOSS) == service.curve(whole, LOSS)

    loads = EXAMPLE.read_text().replace("run.resume()", f"torch.load({str(service.code / 'latest.pt')!r})")
    one = service.submit_script("one", loads, nodes=1, devices=2).id
    service.wait(one, JobState.SUCCEEDED)
    later = service.curve(one, LOSS)
    assert later[0][0] > 1
    assert later == service.curve(whole, LOSS)[later[0][0] - 1 :]


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.strip().splitlines())
