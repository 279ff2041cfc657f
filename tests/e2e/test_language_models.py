"""What docs/reference/language-models.md has: its jobs are valid, and its example learns and is exported."""

from pathlib import Path
import re
import runpy
import sys
from typing import Any

import pytest
import torch
import yaml

from tests.e2e.documented import blocks, environment_in, run_blocks, running_by
from tests.servers import free_port
from torchyard.contract.recipes import CausalLm
from torchyard.contract.recipes.causal import HF_CAUSAL
from torchyard.contract.spec.spec import parse_spec
from trainer.recipes.causal import make_task

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "language-models.md").read_text()
MAKE_BASE = ROOT / "examples" / "language_model" / "make_base.py"
JOBS = re.compile(r"cat > (\w+)\.yaml <<END\n(.*?)^END$", re.MULTILINE | re.DOTALL)
LIBRARY = '''
def {name}(file, {other}):
    """Return the {name} of the {other}."""
'''


def documented_jobs(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns the specs of the example by the names of their files, for a shell in this folder."""
    return {name: yaml.safe_load(text.replace("$PWD", str(folder))) for name, text in JOBS.findall(PAGE)}


def test_each_job_of_the_page_is_valid(tmp_path: Path) -> None:
    shown = [yaml.safe_load(block) for block in blocks(PAGE, "yaml")]
    found = [parse_spec(raw).config for raw in [*shown, *documented_jobs(tmp_path).values()]]
    assert len(found) == 4
    assert all(isinstance(config, CausalLm) for config in found)


def test_the_page_names_each_type_of_base() -> None:
    sentence = re.search(r"The types are (.*?): the `model_type`", PAGE, re.DOTALL)
    assert sentence is not None
    assert re.findall(r"`(\w+)`", sentence[1]) == list(HF_CAUSAL)


def test_the_example_in_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its program makes a base and examples, from which the documented jobs begin."""
    library = tmp_path / "library"
    library.mkdir()
    names = ("name", "size", "owner", "time", "type")
    code = [LIBRARY.format(name=name, other=other) for name in names for other in names]
    (library / "files.py").write_text("\n".join(code))
    (library / "broken.py").write_text("def")
    folder = tmp_path / "lm"
    monkeypatch.setattr(sys, "argv", [str(MAKE_BASE), str(folder), "--library", str(library), "--size", "16"])
    runpy.run_path(str(MAKE_BASE), run_name="__main__")
    assert "25 texts, 25 pairs" in capsys.readouterr().out
    for name, raw in documented_jobs(tmp_path).items():
        raw["config"]["model"]["weights"] = (folder / "base").as_uri()
        config = parse_spec(raw).config
        assert isinstance(config, CausalLm)
        task = make_task(config, source=config.data.source, device=torch.device("cpu"))
        assert task.samples >= 1
        assert task.evaluate(None).metrics["val/perplexity"] < 1000, name


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_the_example_learns_generates_and_is_exported_for_transformers(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shell = environment_in(tmp_path)
    first, up, *steps = blocks(PAGE, "sh")
    run_blocks([first], tmp_path, shell)
    with running_by(up.replace("torchyard up", f"torchyard up --port {free_port()}"), tmp_path, shell):
        said = run_blocks(steps, tmp_path, shell)
    last = re.search(r"^val/perplexity +([\d.]+) ", said, re.MULTILINE)  # of `torchyard metrics read`
    assert last is not None, said
    assert float(last[1]) < 80  # it was 54 where the page's figures were seen, and 209 after the first epoch
    assert re.search(r"Return True if .*\.", said), said  # the answer to `is file:`
    (program,) = blocks(PAGE, "python")
    written = run_blocks([f"python - <<'END'\n{program}END"], tmp_path, shell)
    assert written.startswith("read line: ")
    assert {"model.safetensors", "tokenizer.json"} <= {path.name for path in (tmp_path / "lm" / "described").iterdir()}
