"""The folder of a base: what it says when it cannot be used, what its digest covers, and how its weights are read."""

from collections.abc import Callable
import hashlib
import json
import os
from pathlib import Path
import shutil
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
import torch
from torch import Tensor

from tests.approved import Approved
from tests.trainer.bases import TEMPLATE, tiny_base
from torchyard.contract.errors import DataError
from torchyard.models import weightfiles
from torchyard.models.base import load_model, open_base, slices
from torchyard.models.openfile import OpenFile

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("base"))


@pytest.fixture
def base(made: Path, tmp_path: Path) -> Path:
    """A base that the test may spoil."""
    return Path(shutil.copytree(made, tmp_path / "base"))


def edit(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def shard(base: Path) -> None:
    """Puts the weights into two files with an index."""
    tensors = load_file(base / SINGLE)
    names = sorted(tensors)
    parts = {"model-1.safetensors": names[:9], "model-2.safetensors": names[9:]}
    for file, own in parts.items():
        save_file({name: tensors[name] for name in own}, base / file)
    (base / INDEX).write_text(json.dumps({"weight_map": {name: file for file, own in parts.items() for name in own}}))
    (base / SINGLE).unlink()


def rewrite(base: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(base / SINGLE)
    change(tensors)
    save_file(tensors, base / SINGLE)


def only_slow(base: Path) -> None:
    (base / "tokenizer.json").unlink()
    (base / "tokenizer.model").write_bytes(b"spm")


def pickled(base: Path) -> None:
    (base / SINGLE).rename(base / "pytorch_model.bin")


def torn(base: Path) -> None:
    content = (base / SINGLE).read_bytes()
    (base / SINGLE).write_bytes(content[: len(content) // 2])


def index_says(**files: str) -> Callable[[Path], None]:
    def spoil(base: Path) -> None:
        shard(base)
        known = json.loads((base / INDEX).read_text())["weight_map"]
        edit(base / INDEX, weight_map={**known, **files})

    return spoil


def piped(name: str) -> Callable[[Path], None]:
    def spoil(base: Path) -> None:
        (base / name).unlink()
        os.mkfifo(base / name)

    return spoil


def linked(name: str) -> Callable[[Path], None]:
    def spoil(base: Path) -> None:
        (base / name).rename(base.parent / "elsewhere")
        (base / name).symlink_to("../elsewhere")

    return spoil


def with_config(**values: Any) -> Callable[[Path], None]:
    return lambda base: edit(base / "config.json", **values)


def with_tokenizer_config(**values: Any) -> Callable[[Path], None]:
    return lambda base: edit(base / "tokenizer_config.json", **values)


def written(name: str, content: str) -> Callable[[Path], Any]:
    return lambda base: (base / name).write_text(content)


def without(*names: str) -> Callable[[Path], None]:
    def spoil(base: Path) -> None:
        for name in names:
            (base / name).unlink()

    return spoil


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no config": (without("config.json"), r"there is no config\.json, but tokenizer\.json: name the folder that"),
    "adapter": (
        lambda base: (base / "config.json").rename(base / "adapter_config.json"),
        "it is an adapter, and no base: use the",
    ),
    "config no JSON": (written("config.json", "{"), r"config\.json is not JSON: "),
    "config a list": (written("config.json", "[]"), r"config\.json is not a JSON object"),
    "deep config": (written("config.json", "[" * 100_000), r"config\.json is not JSON"),
    "long config": (written("config.json", " " * (5 << 20)), r"config\.json has 5242880 bytes, and may have 4194304"),
    "encoder": (with_config(model_type="roberta"), "says model_type 'roberta', which is not one of gemma2, "),
    "vision": (with_config(model_type="vit"), "says model_type 'vit', which is not one of gemma2, "),
    "no type": (with_config(model_type=None), "says model_type 'None'"),
    "bad activation": (with_config(hidden_act="x"), "cannot be used: "),
    "bad rope": (with_config(rope_parameters={"rope_type": "x"}), "cannot be used: "),
    "no heads": (with_config(num_attention_heads=0), "cannot be used: "),
    "quantized": (with_config(quantization_config={"quant_method": "gptq"}), "it is quantized .* use the base that"),
    "a billion layers": (with_config(num_hidden_layers=10**9), "it has 1000000000 layers, and its weights are 21 ten"),
    "no layers": (with_config(num_hidden_layers=-3), "it has -3 layers"),
    "a huge vocabulary": (
        with_config(vocab_size=10**12),
        r"needs model\.embed_tokens\.weight of \(10{12}, 32\)",
    ),
    "more layers": (with_config(num_hidden_layers=3), r"its model needs model\.layers\.2\.\S+, and no file has it"),
    "other shapes": (with_config(intermediate_size=96), r"gate_proj\.weight of \(96, 32\), .* one of \(64, 32\)"),
    "no tokenizer": (without("tokenizer.json"), r"there is no tokenizer\.json: put the tokenizer of the base into"),
    "slow tokenizer": (only_slow, r"a slow tokenizer: convert it with python -c .*AutoTokenizer.*save_pretrained"),
    "torn tokenizer": (written("tokenizer.json", "{}"), r"tokenizer\.json and what is beside it are no tokenizer: "),
    "tokenizer no JSON": (written("tokenizer.json", "{"), r"tokenizer\.json is not JSON"),
    "no end": (with_tokenizer_config(eos_token=None), r"no eos_token, .* name one in tokenizer_config\.json"),
    "special tokens": (
        with_tokenizer_config(additional_special_tokens=[f"<{n}>" for n in range(20_001)]),
        r"tokenizer_config\.json has 20001 tokens beside the vocabulary",
    ),
    "small vocabulary": (
        with_config(vocab_size=300),
        r"tokenizer\.json has tokens up to 304, and config\.json a ",
    ),
    "long template": (written("chat_template.jinja", "x" * (10 << 20)), r"chat_template\.jinja has 10485760 bytes"),
    "long template inside": (
        lambda base: [without("chat_template.jinja")(base), with_tokenizer_config(chat_template="x" * (2 << 20))(base)],
        "its chat template has 2097152 characters",
    ),
    "pickles": (pickled, r"are pickles, .*: convert them with python -c .*AutoModelForCausalLM.*save_pretrained"),
    "no weights": (without(SINGLE), r"there is no model\.safetensors, and no model\.safetensors\.index\.json"),
    "torn weights": (torn, r"model\.safetensors is incomplete, or no safetensors: copy it again"),
    "index no JSON": (
        lambda base: [shard(base), (base / INDEX).write_text("{")],
        r"index\.json is incomplete, or has no",
    ),
    "index a list": (
        lambda base: [shard(base), (base / INDEX).write_text("[]")],
        r"index\.json is incomplete, or has no",
    ),
    "file missing": (
        lambda base: [shard(base), (base / "model-2.safetensors").unlink()],
        r"there is no model-2\.safetensors",
    ),
    "file outside": (index_says(x="../model.safetensors"), r"says that x is in '\.\./model\.safetensors', which is no"),
    "absolute file": (
        index_says(x="/etc/passwd"),
        r"says that x is in '/etc/passwd', which is not a file of the folder",
    ),
    "no file": (index_says(x=".."), "which is no file of the folder|is not a regular file"),
    "file a number": (index_says(x=3), "says that x is in '3', which is not a file"),  # pyright: ignore[reportArgumentType] it is wrong
    "in no file": (index_says(x="model-1.safetensors"), r"says that x is in model-1\.safetensors, which has no such"),
    "in two files": (
        lambda base: [shard(base), shutil.copy(base / "model-1.safetensors", base / "b"), index_says_more(base, y="b")],
        "which has no such tensor|is in two files",
    ),
    "integers": (
        lambda base: rewrite(base, lambda found: found.update({"model.norm.weight": torch.ones(32).int()})),
        r"model\.norm\.weight has numbers of the type I32, and not F64, F32, F16, BF16",
    ),
    "not a number": (
        lambda base: rewrite(base, lambda found: found["model.layers.1.mlp.up_proj.weight"][3, 3].fill_(torch.nan)),
        r"its weights are not finite: model\.layers\.1\.mlp\.up_proj\.weight",
    ),
    "two names": (
        lambda base: rewrite(base, lambda found: found.update({"norm.weight": torch.ones(32)})),
        r"its files have two tensors for model\.norm\.weight",
    ),
    "not tied": (with_config(tie_word_embeddings=True), "are one, and they are not: set tie_word_embeddings to false"),
    **{f"pipe {name}": (piped(name), "is not a regular file") for name in ("config.json", "tokenizer.json", SINGLE)},
    **{
        f"link {name}": (linked(name), r"is a link to '\.\./elsewhere': put the file itself into the folder")
        for name in ("config.json", "tokenizer.json", SINGLE)
    },
}


def index_says_more(base: Path, **files: str) -> None:
    edit(base / INDEX, weight_map={**json.loads((base / INDEX).read_text())["weight_map"], **files})


@pytest.mark.parametrize("name", BAD)
def test_a_base_that_cannot_be_used_is_refused_with_one_line(name: str, base: Path, approved: Approved) -> None:
    spoil, message = BAD[name]
    spoil(base)
    with pytest.raises(DataError, match=message) as refused:
        load_model(open_base(base, field="model.weights"))
    assert refused.value.message == approved.of_row("message", base=base)
    assert "\n" not in refused.value.message


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, approved: Approved) -> None:
    with pytest.raises(DataError) as raised:
        open_base(tmp_path / "absent")
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_code_and_kernels_that_a_base_names_are_not_run(base: Path) -> None:
    ran = base / "ran"
    (base / "evil.py").write_text(f"open({str(ran)!r}, 'w')\nclass Evil: pass\n")
    code = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil", "AutoTokenizer": ["evil.Evil", None]}
    kernel = {"_attn_implementation": "kernels-community/x", "attn_implementation": "kernels-community/x"}
    edit(base / "config.json", auto_map=code, dtype="int8", **kernel)
    edit(base / "tokenizer_config.json", auto_map=code, tokenizer_class="Evil")
    opened = open_base(base)
    module: Any = load_model(opened)
    assert module.config._attn_implementation == "sdpa"
    assert type(module).__module__ == "transformers.models.llama.modeling_llama"
    assert not ran.exists()


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_loaded_into_the_number_format_that_is_asked_for(
    stored: torch.dtype, dtype: torch.dtype, base: Path
) -> None:
    rewrite(base, lambda found: found.update({name: value.to(stored) for name, value in found.items()}))
    expected = {name: value.to(dtype) for name, value in load_file(base / SINGLE).items()}
    state = load_model(open_base(base), dtype=dtype).state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in state.items())


def test_shards_are_one_model_and_the_digest_is_of_all_files(base: Path) -> None:
    whole = open_base(base)
    expected, before = load_model(whole).state_dict(), whole.digest
    shard(base)
    opened = open_base(base)
    state = load_model(opened).state_dict()
    assert all(torch.equal(state[name], value) for name, value in expected.items())
    names = ["chat_template.jinja", "config.json", "model-1.safetensors", "model-2.safetensors", INDEX]
    used = sorted([*names, "tokenizer.json", "tokenizer_config.json"])
    digests = [(name, hashlib.sha256((base / name).read_bytes()).hexdigest()) for name in used]
    text = "".join(f"{name}\0{digest}\n" for name, digest in digests)
    assert opened.digest == hashlib.sha256(text.encode()).hexdigest()
    assert opened.digest != before
    assert open_base(base).digest == opened.digest


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "chat_template.jinja", SINGLE])
def test_a_change_of_any_file_changes_the_digest(name: str, base: Path) -> None:
    before = open_base(base).digest
    if name == SINGLE:
        rewrite(base, lambda found: found["model.norm.weight"].add_(1))
    else:
        (base / name).write_text((base / name).read_text() + " ")
    assert open_base(base).digest != before


def test_a_file_that_takes_the_place_of_another_is_not_read(base: Path, tmp_path: Path, approved: Approved) -> None:
    file, content = OpenFile(base, SINGLE), (base / SINGLE).read_bytes()
    opened = open_base(base)
    (base / "other").write_bytes(b"\0" * len(content))
    (base / "other").replace(base / SINGLE)
    assert Path(file.path).read_bytes() == file.read(len(content)) == content
    assert file.sha256() == hashlib.sha256(content).hexdigest()
    with pytest.raises(DataError) as raised:  # it has no name any more
        load_model(opened)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_a_file_that_is_changed_in_its_place_is_refused(base: Path, tmp_path: Path, approved: Approved) -> None:
    opened = open_base(base)
    with (base / SINGLE).open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\0\0\0\0")
    with pytest.raises(DataError) as raised:
        load_model(opened)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    with pytest.raises(DataError) as raised:
        _ = opened.digest
    assert str(raised.value) == approved("model weights cannot", tmp_path=tmp_path)


def as_snapshot(base: Path, cache: Path) -> Path:
    """Puts the files into blobs of a cache as Hugging Face has it. Returns the folder of the snapshot."""
    snapshot = cache / "snapshots" / "main"
    (cache / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for file in base.iterdir():
        content = file.read_bytes()
        git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        name = hashlib.sha256(content).hexdigest() if file.name == SINGLE else git
        (cache / "blobs" / name).write_bytes(content)
        (snapshot / file.name).symlink_to(f"../../blobs/{name}")
    return snapshot


def test_a_snapshot_of_a_cache_is_used_and_its_digests_are_checked(
    base: Path, tmp_path: Path, approved: Approved
) -> None:
    snapshot = as_snapshot(base, tmp_path / "cache")
    opened = open_base(snapshot)
    assert opened.digest == open_base(base).digest
    load_model(opened)
    blob = (snapshot / SINGLE).resolve()
    content = bytearray(blob.read_bytes())
    content[-1] ^= 1
    blob.write_bytes(content)
    with pytest.raises(DataError) as raised:
        _ = open_base(snapshot).digest
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    (snapshot / "config.json").resolve().write_text((base / "config.json").read_text() + " ")
    with pytest.raises(DataError) as raised:
        open_base(snapshot)
    assert str(raised.value) == approved("model weights cannot", tmp_path=tmp_path)


def test_a_part_of_a_weight_is_read_alone(base: Path) -> None:
    found = slices(open_base(base))["model.layers.0.mlp.up_proj.weight"]
    whole = load_file(base / SINGLE)["model.layers.0.mlp.up_proj.weight"]
    assert (found.shape, found.dtype) == (whole.shape, whole.dtype)
    assert torch.equal(found[...], whole)
    assert torch.equal(found[3:9], whole[3:9])
    assert found[3:9].data_ptr() == found[...].data_ptr() + 3 * 32 * 4  # mapped: pages that nobody uses are not read


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox"])
def test_weights_with_names_of_other_versions_are_found(kind: str, tmp_path: Path) -> None:
    tiny_base(tmp_path, kind=kind)
    expected = load_model(open_base(tmp_path)).state_dict()
    rewrite(tmp_path, lambda found: _older(kind, found))
    state = load_model(open_base(tmp_path)).state_dict()
    assert all(torch.equal(state[name], value) for name, value in expected.items())


def _older(kind: str, found: dict[str, Tensor]) -> None:
    if kind == "gpt2":  # as on the hub: without the name of the inner model, and with masks of booleans
        for name in list(found):
            found[name.removeprefix("transformer.")] = found.pop(name)
        found["h.0.attn.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool)
        return
    assert "embed_out.weight" in found
    found["gpt_neox.layers.0.attention.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool)


def test_dropouts_are_those_that_the_base_names(tmp_path: Path) -> None:
    tiny_base(tmp_path, kind="gpt2")
    raw = json.loads((tmp_path / "config.json").read_text())
    del raw["resid_pdrop"]
    (tmp_path / "config.json").write_text(json.dumps({**raw, "attn_pdrop": 0.3}))
    config = open_base(tmp_path).config
    assert (config.attn_pdrop, config.resid_pdrop) == (0.3, 0)


def test_the_tokenizer_is_that_of_the_file_and_the_template_is_found(base: Path) -> None:
    opened = open_base(base)
    assert len(opened.tokenizer) == 305
    assert opened.chat_template == TEMPLATE
    without("chat_template.jinja")(base)
    assert open_base(base).chat_template is None


def test_files_are_closed_when_a_base_is_forgotten(base: Path) -> None:
    file = OpenFile(base, SINGLE)
    descriptor = file.descriptor
    os.fstat(descriptor)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert weightfiles.SINGLE == SINGLE
