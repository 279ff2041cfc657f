"""Exports of language models, read again with transformers and peft as others would."""

from collections.abc import Iterator, Mapping
import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
import torch
from torch import Tensor

from tests.approved import Approved
from tests.disks import mounted
from tests.torchyard.models.languages import adapter, whole
from tests.trainer.bases import END, TEMPLATE, tiny_base
from tests.trainer.rendering import rendered_here
import torchyard
from torchyard.contract.errors import ExportError
from torchyard.contract.models.names import Format
from torchyard.models import Generator, export
from torchyard.models.exporting import languages, tensorfiles
from torchyard.models.exporting.graphs import Run, Trial

IDS = torch.tensor([[9, 40, 41, 12, 7, 33]])
CONVERSATION = [{"role": "user", "content": "The yard"}]


@pytest.fixture(scope="module", autouse=True)
def rendered() -> Iterator[None]:
    """Templates are rendered in this process."""
    with rendered_here():
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def models(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Generator]:
    folder = tmp_path_factory.mktemp("models")
    states = {"adapter": adapter(base, form="messages", size=0.05), "whole": whole(base, form="messages")}
    return {name: loaded(folder / f"{name}.pt", state) for name, state in states.items()}


def loaded(path: Path, state: dict[str, Any]) -> Generator:
    torch.save(state, path)
    return reloaded(path)


def reloaded(path: Path) -> Generator:
    model = torchyard.load(path, device="cpu")
    assert isinstance(model, Generator)
    return model


def of_transformers(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()


def logits(module: Any) -> Tensor:
    with torch.no_grad():
        return module(input_ids=IDS).logits


def assert_equal(found: Tensor, expected: Tensor) -> None:
    """Logits differ by 4e-7 at most, of the largest if that is above 1."""
    assert (found - expected).abs().max().item() <= 4e-7 * max(1, expected.abs().max().item())


@pytest.mark.parametrize("name", ["adapter", pytest.param("whole", marks=pytest.mark.thorough)])
def test_transformers_loads_the_folder(models: Mapping[str, Generator], tmp_path: Path, name: str) -> None:
    from transformers import AutoTokenizer

    model = models[name]
    done = export(model, to="hf", path=tmp_path / "it")
    assert done.difference <= 4e-7
    theirs, tokenizer = of_transformers(tmp_path / "it"), AutoTokenizer.from_pretrained(tmp_path / "it")
    assert_equal(logits(theirs), logits(model.module))
    prompt = tokenizer.apply_chat_template(CONVERSATION, add_generation_prompt=True, return_tensors="pt").input_ids
    made = theirs.generate(prompt, do_sample=False, max_new_tokens=12)[0, prompt.shape[1] :]
    assert tokenizer.decode(made, skip_special_tokens=True) == model.generate(CONVERSATION, max_new_tokens=12)
    assert theirs.generation_config.eos_token_id == [tokenizer.convert_tokens_to_ids(END)]
    assert tokenizer.chat_template == TEMPLATE
    assert not [path for path in (tmp_path / "it").glob("*.json") if "/tmp" in path.read_text()]
    assert all(lora not in load_file(tmp_path / "it" / "model.safetensors") for lora in ("lora_A", "base_layer"))


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_peft_loads_the_adapter_on_its_base(models: Mapping[str, Generator], base: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    model = models["adapter"]
    done = export(model, to="hf", path=tmp_path / "it", adapter=True)
    assert done.difference <= 4e-7
    names = {path.name for path in (tmp_path / "it").iterdir()}
    assert names == {"adapter_config.json", "adapter_model.safetensors", "README.md"}
    theirs = PeftModel.from_pretrained(of_transformers(base), str(tmp_path / "it")).eval()
    assert_equal(logits(theirs), logits(model.module))
    config = json.loads((tmp_path / "it" / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["r"], config["lora_alpha"]) == (str(base), 4, 8)
    told = (tmp_path / "it" / "README.md").read_text()
    assert told.startswith(f'---\nbase_model: "{base}"\nlibrary_name: peft\n---\n')
    assert json.loads(told.partition("```json\n")[2].partition("```")[0]) == done.card


@pytest.mark.parametrize("name", ["adapter", "whole"])
def test_safetensors_is_loaded_as_the_checkpoint_is(models: Mapping[str, Generator], tmp_path: Path, name: str) -> None:
    model = models[name]
    done = export(model, to="safetensors", path=tmp_path / "it.safetensors")
    assert done.difference == 0
    again = reloaded(tmp_path / "it.safetensors")
    assert (again.card, again.metadata) == (model.card, model.metadata)
    assert load_file(tmp_path / "it.safetensors").keys() == model.module.state_dict().keys()


def test_large_weights_are_in_several_files(
    models: Mapping[str, Generator], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorfiles, "MOST_BYTES", 60_000)
    export(models["adapter"], to="hf", path=tmp_path / "it")
    parts = sorted(path.name for path in (tmp_path / "it").glob("*.safetensors"))
    assert len(parts) > 1 and parts[0] == f"model-00001-of-{len(parts):05}.safetensors"
    index = json.loads((tmp_path / "it" / "model.safetensors.index.json").read_text())
    sizes = {part: sum(each.nbytes for each in load_file(tmp_path / "it" / part).values()) for part in parts}
    assert {*index["weight_map"].values()} == {*parts} and index["metadata"]["total_size"] == sum(sizes.values())
    assert max(sizes.values()) <= 60_000
    assert_equal(logits(of_transformers(tmp_path / "it")), logits(models["adapter"].module))
    monkeypatch.undo()
    export(models["adapter"], to="hf", path=tmp_path / "it", force=True)  # an earlier export, of other names
    assert not [path for path in (tmp_path / "it").iterdir() if path.name in parts]


@pytest.mark.parametrize("to", ["hf", pytest.param("safetensors", marks=pytest.mark.thorough)])
def test_a_full_disk_leaves_nothing(models: Mapping[str, Generator], tmp_path: Path, to: Format) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, kibibytes=64):
        with pytest.raises(OSError, match=r"No space left on device: .*/disk"):
            export(models["whole"], to=to, path=disk / "it.safetensors")
        assert [*disk.iterdir()] == []


def test_what_computes_something_else_is_not_left(
    models: Mapping[str, Generator], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    own = languages._opened_folder  # pyright: ignore[reportPrivateUsage]

    def other(model: Generator, folder: Path) -> Run:
        run = own(model, folder)

        def scaled(trial: Trial) -> Tensor:
            return run(trial) * 1.001

        return scaled

    monkeypatch.setattr(languages, "_opened_folder", other)
    with pytest.raises(ExportError) as raised:
        export(models["adapter"], to="hf", path=tmp_path / "it")
    assert str(raised.value) == approved("message")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("name", "to", "alone"),
    [
        ("adapter", "onnx", False),
        ("whole", "torch-export", False),
        ("whole", "hf", True),
        ("adapter", "safetensors", True),
    ],
)
def test_what_is_not_written_is_refused(
    models: Mapping[str, Generator], tmp_path: Path, approved: Approved, *, name: str, to: Format, alone: bool
) -> None:
    with pytest.raises(ExportError) as raised:
        export(models[name], to=to, path=tmp_path / "it.safetensors", adapter=alone)
    assert str(raised.value) == approved.of_row("message")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    "kind", ["gpt2", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("gemma2", "phi3"))]
)
def test_other_types_are_merged(kind: str, tmp_path: Path) -> None:
    model = loaded(tmp_path / "best.pt", adapter(tiny_base(tmp_path / "base", kind=kind), size=0.02))
    assert export(model, to="hf", path=tmp_path / "merged").difference <= 1e-6  # its many norms magnify rounding
    assert export(model, to="hf", path=tmp_path / "adapter", adapter=True).difference == 0
