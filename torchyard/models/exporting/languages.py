"""Exports of language models: a folder for transformers, an adapter for peft, or one file for Torchyard."""

from collections.abc import Callable
from functools import partial
import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchyard.contract.errors import ExportError
from torchyard.contract.models.names import Format
from torchyard.contract.wire.version import own_version
from torchyard.models import lora, text
from torchyard.models.exporting import weights
from torchyard.models.exporting.graphs import BATCH, LENGTH, OUTPUT, Run, Trial, Written, quiet
from torchyard.models.exporting.tensorfiles import NAMES, write, write_model
from torchyard.models.generator import Generator
from torchyard.models.library import configure_transformers
from torchyard.models.loading import load
from torchyard.models.tokenizer import GENERAL, adds_prefix_space

FOLDER = frozenset(
    {
        *NAMES,
        *("config.json", "generation_config.json", "chat_template.jinja"),
        *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    }
)
"""Patterns of the files of a whole model."""
ADAPTER = frozenset({"adapter_config.json", "adapter_model.safetensors", "README.md"})
SIZES = ((1, 16), (3, 40))
"""How many sequences the trials have, and how long they are, where the context allows it."""
_OLDER_TENSORS = {"gpt_neox": {"lm_head.weight": "embed_out.weight"}}
"""By type: names of tensors, and those by which transformers 4 reads them. 5 reads these, too."""
SAMPLE = "Two words, ünïcode 😀\n  and a second line.\n"
SEED = 7


def names(to: Format, *, adapter: bool) -> frozenset[str] | None:
    """Returns patterns of the files in the folder that is written; None for a file."""
    if to != "hf":
        return None
    return ADAPTER if adapter else FOLDER


def refuse(model: Generator, to: Format, *, adapter: bool) -> None:
    """Raises ExportError for what is not written."""
    if to in ("onnx", "torch-export"):
        raise ExportError(f"a language model is not written as {to}: choose hf, which other programs convert")
    if adapter and to != "hf":
        raise ExportError(f"an adapter alone is written by hf, and {to} always has the adapter alone")
    if adapter and model.language.adapter is None:
        raise ExportError("the checkpoint has all weights, and no adapter: leave adapter out")
    if any(value.dtype != torch.float32 or value.device.type != "cpu" for value in model.module.parameters()):
        raise ExportError('a language model is exported from host memory: load it with device="cpu"')


def written(model: Generator, to: Format, *, adapter: bool) -> Written:
    """Returns what is written, and how it is tried."""
    described = card(model)
    trials = _trials(model)
    if to == "safetensors":
        return Written(weights.content(model), partial(_opened_file, model), trials, described)
    if adapter:
        return Written(partial(_write_adapter, model, described), partial(_opened_adapter, model), trials, described)
    return Written(partial(_write_folder, model), partial(_opened_folder, model), trials, described)


def card(model: Generator) -> dict[str, Any]:
    """Returns the model's card with its inputs and outputs."""
    return {
        "torchyard": own_version(),
        **model.card,
        "metrics": {name: value for name, value in model.metrics.items() if math.isfinite(value)},
        "inputs": {"input_ids": {"type": "int64", "shape": [BATCH, LENGTH]}},
        "outputs": {OUTPUT: {"shape": [BATCH, LENGTH, text.own_config(model.module).vocab_size]}},
    }


def _trials(model: Generator) -> list[Trial]:
    vocabulary = text.own_config(model.module).vocab_size
    random = torch.Generator().manual_seed(SEED)
    trials: list[Trial] = []
    for count, length in SIZES:
        ids = torch.randint(vocabulary, (count, min(length, model.context)), generator=random)
        with torch.no_grad():
            trials.append(Trial([], (ids,), model.module(input_ids=ids, use_cache=False).logits))
    return trials


def _write_folder(model: Generator, folder: Path) -> None:
    configure_transformers()
    from transformers import GenerationConfig

    module, prompts = model.module, model.prompts
    state = module.state_dict() if model.language.adapter is None else lora.merged(module)
    older = _OLDER_TENSORS.get(text.own_config(module).model_type, {})
    write_model(folder, ((older.get(name, name), tensor) for name, tensor in state.items()))
    config = _with_older_names({**text.config_of(module), "dtype": "float32"})
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    stops = prompts.stops("a") | (prompts.turn_ends if prompts.has_template else frozenset())
    own = text.own_config(module)
    ends = GenerationConfig(eos_token_id=sorted(stops), pad_token_id=own.pad_token_id, bos_token_id=own.bos_token_id)
    ends.save_pretrained(folder)
    prompts.tokenizer.save_pretrained(folder)
    _name_tokenizer(folder)


def _with_older_names(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the configuration with rotary positions also as transformers 4 names them: it ignores the new name."""
    found = config.get("rope_parameters") or {}
    rotary = found.get("full_attention", found)
    if "rope_theta" not in rotary:
        return config
    scaling = {key: value for key, value in rotary.items() if key not in {"rope_theta", "partial_rotary_factor"}}
    is_scaled = scaling.get("rope_type", "default") != "default"
    older = {"rope_theta": rotary["rope_theta"], "rope_scaling": scaling if is_scaled else None}
    if "partial_rotary_factor" in rotary:
        older["partial_rotary_factor"] = rotary["partial_rotary_factor"]
    if "sliding_attention" in found:
        older["rope_local_base_freq"] = found["sliding_attention"]["rope_theta"]
    if config["model_type"] == "gpt_neox":
        older |= {"rotary_emb_base": rotary["rope_theta"], "rotary_pct": rotary.get("partial_rotary_factor", 1.0)}
    return {**config, **older}


def _name_tokenizer(folder: Path) -> None:
    """Names the tokenizer's class as transformers 4 and 5 both know it."""
    path = folder / "tokenizer_config.json"
    adds = adds_prefix_space((folder / "tokenizer.json").read_text())
    config = {**json.loads(path.read_text()), "tokenizer_class": GENERAL, "add_prefix_space": adds}
    path.write_text(json.dumps(config, indent=2))


def _opened_folder(model: Generator, folder: Path) -> Run:
    from transformers import AutoTokenizer

    model.prompts.tokens(SAMPLE)  # within the limits of a stranger's tokenizer, before this process does the same
    tokenizer, own = AutoTokenizer.from_pretrained(folder, local_files_only=True), model.prompts.tokenizer
    if tokenizer.encode(SAMPLE) != own.encode(SAMPLE) or tokenizer.chat_template != own.chat_template:
        raise ExportError("what was written has another tokenizer than the model")
    return _run(_of_transformers(model, folder))


def _write_adapter(model: Generator, described: dict[str, Any], folder: Path) -> None:
    language = model.language
    assert language.adapter is not None
    base = language.name.removeprefix("file://")
    config, tensors = lora.as_peft(model.module, language.adapter, base=base)
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2))
    write(folder / "adapter_model.safetensors", tensors, metadata={"format": "pt"})
    fields = f"base_model: {json.dumps(base)}\nlibrary_name: peft\n"
    told = json.dumps(described, indent=2, ensure_ascii=False)
    (folder / "README.md").write_text(
        f"---\n{fields}---\n\nA LoRA adapter, trained by Torchyard:\n\n```json\n{told}\n```\n"
    )


def _opened_adapter(model: Generator, folder: Path) -> Run:
    from peft import PeftModel

    base = model.language.base
    assert base is not None
    with quiet():
        return _run(PeftModel.from_pretrained(_of_transformers(model, base.folder), str(folder)).eval())


def _opened_file(model: Generator, file: Path) -> Run:
    base = model.language.base
    again = load(file, device="cpu", base=None if base is None else base.folder)
    return _run(again.module)


def _of_transformers(model: Generator, folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    attention = text.own_config(model.module)._attn_implementation  # the logits of two differ more than is allowed
    loaded = AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, use_safetensors=True, dtype=torch.float32, attn_implementation=attention
    )
    return loaded.eval()


def _run(module: Callable[..., Any]) -> Run:
    def run(trial: Trial) -> Tensor:
        return module(input_ids=trial.inputs[0], use_cache=False).logits

    return run
