"""A new recipe is a schema module, a trainer module and one line in the registry."""

import json
import os
from pathlib import Path
import shutil
import sys
from typing import Any

import pytest

from tests import forks
from tests.approved import Approved
from tests.trainer.ranks import DEADLINE_S, environment
from torchyard.contract.attempts.rundir import RunDir

forks.preload(__name__, "api.app")

ROOT = Path(__file__).parents[3]

PACKAGES = ("torchyard", "scheduling", "store", "api", "worker", "trainer")

SCHEMA = '''
"""The configuration of `line-fit`."""

from torchyard.contract.recipes.entry import RecipeEntry
from torchyard.contract.recipes.training import DataConfig, ModelConfig, Recipe


class LineModel(ModelConfig):
    name: str = "linear"
    weights: str = "none"


class LineData(DataConfig):
    source: str = "generated"


class LineFit(Recipe):
    """Fits a line to generated points."""

    model: LineModel = LineModel()
    data: LineData = LineData()
    slope: float = 2.0


RECIPE = RecipeEntry(name="line-fit", config=LineFit, measures=frozenset({"val/slope_error"}))
'''

TRAINER = '''
"""The recipe `line-fit`."""

import torch
from torch import nn

from trainer.data.batch import Batch
from trainer.data.identity import Identity
from trainer.recipes.base import RecipeTask
from trainer.task import Evaluation


class Points:
    def __init__(self, slope):
        self.x, self.slope = torch.linspace(-1, 1, 8)[:, None], slope

    def __len__(self):
        return len(self.x)

    def batches(self, plan, *, device):
        return (Batch(self.x[rows].to(device), self.slope * self.x[rows].to(device)) for rows in plan)


class Line:
    identity, split_hash = Identity(digest="0" * 64), "0" * 64

    def __init__(self, slope):
        self.train = self.val = Points(slope)


class LineTask(RecipeTask):
    def loss(self, outputs, targets):
        return nn.functional.mse_loss(outputs, targets)

    def evaluate(self, world, **how):
        error = abs(self.model.weight.item() - self.config.slope)
        return Evaluation({**super().evaluate(world, **how).metrics, "val/slope_error": error}, samples=8)


def make_task(config, *, device, **_):
    return LineTask(
        config=config, model=nn.Linear(1, 1, bias=False).to(device), data=Line(config.slope), device=device
    )
'''

SCRIPT = """
import json, os, sys
from pathlib import Path
from api.routes.cluster import list_trainers
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.spec.spec import parse_spec
from worker.engines.local.warm.preload import MODULES

listed = {trainer.name: trainer for trainer in list_trainers(caller=None).data}
spec = parse_spec(json.loads(sys.argv[1]))
Path(os.environ["TORCHYARD_CONFIG"]).write_text(spec.model_dump_json(include={"trainer", "config", "checkpoint"}))

refused = []
for change in ({"config": {"incline": 3.0}}, {"checkpoint": {"monitor": "val/iou"}}):
    try:
        parse_spec({"trainer": "line-fit", **change})
    except InvalidSpec as error:
        refused += [[item.field, item.message] for item in error.errors]

from trainer.__main__ import main
from trainer.evaluate import evaluate
main()
checkpoints = Path(os.environ["TORCHYARD_RUN_DIR"]) / "checkpoints"
print(json.dumps({
    "names": list(listed),
    "description": listed["line-fit"].description,
    "keys": list(listed["line-fit"].config_schema["properties"]),
    "spec": spec.model_dump(mode="json"),
    "refused": refused,
    "preloaded": "trainer.recipes.line" in MODULES,
    "evaluated": evaluate(checkpoints / "epoch-0001" / "state.pt", device="cpu"),
    "saved": json.loads((checkpoints / "epoch-0001" / "manifest.json").read_text())["metrics"],
}))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the project's packages to which the recipe is added."""
    folder = tmp_path / "source"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package)  # with what was compiled, which takes seconds
    (folder / "torchyard/contract/recipes/line.py").write_text(SCHEMA)
    (folder / "trainer/recipes/line.py").write_text(TRAINER)
    registry = folder / "torchyard/contract/recipes/__init__.py"
    before = registry.read_text()
    registry.write_text(before.replace('    "causal",\n)', '    "causal",\n    "line",\n)'))
    assert len(registry.read_text().splitlines()) == len(before.splitlines()) + 1
    return folder


def run(source: Path, folder: Path, spec: dict[str, Any]) -> str:
    """Runs SCRIPT in a fork of a process that has imported torch. Returns what it printed."""
    run_dir = RunDir(folder / "run")
    run_dir.create()
    env = {
        **os.environ,
        **environment(run_dir, data="generated"),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        **dict.fromkeys(("RANK", "LOCAL_RANK"), "0"),
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "1"),
    }
    said = folder / "said"
    process = forks.context.Process(target=_run_script, args=(source, folder, env, json.dumps(spec), said))
    process.start()
    process.join(DEADLINE_S)
    assert process.exitcode == 0, said.read_text()
    return said.read_text()


def _run_script(source: Path, folder: Path, env: dict[str, str], spec: str, said: Path) -> None:
    """Imports the packages of `source` anew, which wait for a recipe that ours have not."""
    for descriptor in (1, 2):
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), descriptor)
    sys.stdout, sys.stderr = forks.open_output(1, "<stdout>"), forks.open_output(2, "<stderr>")
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]
    sys.path.insert(0, str(source))
    sys.argv = ["script", spec]
    exec(compile(SCRIPT, "script", "exec"), {"__name__": "__main__"})
    sys.stdout.flush()


def test_an_added_recipe_validates_is_listed_trains_and_its_checkpoint_evaluates(
    source: Path, tmp_path: Path, approved: Approved
) -> None:
    config = {"slope": 3.0, "training": {"epochs": 1, "per_device_batch_size": 4}}
    spec = {"trainer": "line-fit", "config": config, "checkpoint": {"monitor": "val/slope_error"}}
    found = json.loads(run(source, tmp_path, spec).splitlines()[-1])
    assert found["names"] == [
        "image-classification",
        "segmentation",
        "text-classification",
        "causal-lm",
        "line-fit",
        "script",
    ]
    assert found["description"] == approved("description")
    assert {"model", "data", "slope", "training"} <= set(found["keys"])
    assert (found["spec"]["name"], found["spec"]["config"]["slope"]) == ("line-fit", 3.0)
    (key, _), (_, monitors) = found["refused"]
    assert key == "config.incline"
    assert monitors == approved("monitors")
    assert found["preloaded"]
    for measured in ("loss", "slope_error"):
        assert found["saved"][f"val/{measured}"] == pytest.approx(found["evaluated"][measured])
    # The mean of x² over the points is 3/7.
    assert found["saved"]["val/loss"] == pytest.approx(found["saved"]["val/slope_error"] ** 2 * 3 / 7, rel=1e-5)
