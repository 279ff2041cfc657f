"""Reads the configuration and the tokenizer in the folder of a base."""

from collections.abc import Iterator, Mapping
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from torchyard.contract.errors import DataError
from torchyard.contract.recipes.causal import HF_CAUSAL
from torchyard.models.checkpoint import raise_unless_failed, reason
from torchyard.models.confined import Confined, is_plain

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, TokenizersBackend

CONFIG, TOKENIZER, TEMPLATE = "config.json", "tokenizer.json", "chat_template.jinja"
MOST_BYTES = {
    CONFIG: 4 << 20,
    TOKENIZER: 64 << 20,
    "tokenizer_config.json": 16 << 20,
    "special_tokens_map.json": 1 << 20,
    "added_tokens.json": 16 << 20,
    TEMPLATE: 1 << 20,
}
"""The files that are read besides the weights, and the bytes that each may have."""
MOST_TEMPLATE_CHARACTERS = 1 << 20
_SLOW = ("tokenizer.model", "vocab.json", "vocab.txt", "merges.txt", "spiece.model")
_CONVERT = "from transformers import AutoTokenizer as T; T.from_pretrained({folder!r}).save_pretrained({folder!r})"
MOST_SPECIAL = 20_000
"""Tokens beside the vocabulary. transformers takes minutes for more, and Gemma has 6242."""
_SPECIAL = ("added_tokens", "added_tokens_decoder", "additional_special_tokens", "extra_special_tokens")
_NOT_OF_THE_MODEL = ("auto_map", "attn_implementation", "dtype", "torch_dtype", "transformers_version")
"""Keys of a configuration that name code, or how a model is loaded. So do those that begin with `_`."""


def read_config(content: bytes, *, tensors: int) -> "PreTrainedConfig":
    """Returns the configuration in `config.json` of a model whose weights are `tensors` tensors. Raises DataError."""
    raw = described(content)
    kind = raw["model_type"]
    if raw.get("quantization_config"):
        raise DataError(f"{CONFIG} says that it is quantized (quantization_config): use the base that it was made of")
    layers = raw.get("n_layer", raw.get("num_hidden_layers", 1))
    if not isinstance(layers, int) or not 0 < layers <= tensors:  # transformers makes lists of as many
        raise DataError(f"{CONFIG} says that it has {str(layers)[:100]} layers, and its weights are {tensors} tensors")
    return _config(kind, {key: value for key, value in raw.items() if key != "model_type"})


def described(content: bytes) -> dict[str, Any]:
    """Returns the object in `config.json`, without what names code. Raises DataError unless its type is one of ours."""
    try:
        raw: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{CONFIG} is not JSON: {reason(error)}") from error
    if not isinstance(raw, dict):
        raise DataError(f"{CONFIG} is not a JSON object")
    kind = raw.get("model_type")
    if kind not in HF_CAUSAL:
        raise DataError(f"{CONFIG} says model_type {str(kind)[:100]!r}, which is not one of {', '.join(HF_CAUSAL)}")
    return {key: value for key, value in raw.items() if key not in _NOT_OF_THE_MODEL and not key.startswith("_")}


def read_tokenizer(
    contents: Mapping[str, bytes], *, names: set[str], folder: Path, confined: bool
) -> "TokenizersBackend":
    """Returns the tokenizer of files with these contents. `names` are those of all files in `folder`.

    `confined`: what its reading takes is known before this process reads it. Raises DataError.
    """
    if TOKENIZER not in contents:
        raise DataError(_without_tokenizer(names, folder))
    for name in contents.keys() - {CONFIG, TEMPLATE}:
        _check_special(name, contents[name])
    if confined:
        _check_reading(contents)
    from transformers import TokenizersBackend

    with TemporaryDirectory(prefix="torchyard-") as copy:  # what was hashed is what is read
        for name, content in contents.items():
            Path(copy, name).write_bytes(content)
        try:
            # Not the class of the model's type, which adds tokens of its own.
            tokenizer = TokenizersBackend.from_pretrained(Path(copy), local_files_only=True, trust_remote_code=False)
        except BaseException as error:
            raise_unless_failed(error)
            raise DataError(f"{TOKENIZER} and what is beside it are no tokenizer: {reason(error)}") from error
    if tokenizer.eos_token_id is None:
        raise DataError("its tokenizer has no eos_token, with which texts end: name one in tokenizer_config.json")
    return tokenizer


def template_of(tokenizer: "TokenizersBackend") -> str | None:
    """Returns the chat template, of several the default one, if there is one. Raises DataError if it is too long."""
    found: Any = tokenizer.chat_template
    if isinstance(found, dict):
        found = found.get("default")
    if found is None:
        return None
    if len(found) > MOST_TEMPLATE_CHARACTERS:
        raise DataError(f"its chat template has {len(found)} characters, and may have {MOST_TEMPLATE_CHARACTERS}")
    return found


def check_vocabulary(tokenizer: "TokenizersBackend", config: "PreTrainedConfig") -> None:
    """Raises DataError if the tokenizer has tokens that the model does not."""
    highest = max(tokenizer.get_vocab().values(), default=0)
    if highest >= config.vocab_size:
        raise DataError(
            f"{TOKENIZER} has tokens up to {highest}, and {CONFIG} a vocab_size of {config.vocab_size}: one of them is "
            "another base's, or the embeddings were not resized"
        )


def _config(kind: str, settings: Mapping[str, Any]) -> "PreTrainedConfig":
    from transformers import AutoConfig

    try:
        config = AutoConfig.for_model(kind, **settings)
    except Exception as error:  # each type has errors of its own
        raise DataError(f"{CONFIG} is not valid for a {kind}: {reason(error)}") from error
    for key, value in config.to_dict().items():
        if ("dropout" in key or "pdrop" in key) and isinstance(value, float) and key not in settings:
            setattr(config, key, 0.0)  # the type's own, of which the base says nothing
    return config


def _check_special(name: str, content: bytes) -> None:
    try:
        raw: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name} is not JSON: {reason(error)}") from error
    if not isinstance(raw, dict):
        raise DataError(f"{name} is not a JSON object")
    for key, value in [("all", raw)] if name == "added_tokens.json" else [(key, raw.get(key)) for key in _SPECIAL]:
        if isinstance(value, (list, dict)) and len(value) > MOST_SPECIAL:
            raise DataError(
                f"{name} has {len(value)} tokens beside the vocabulary ({key}), and may have {MOST_SPECIAL}"
            )


def _check_reading(contents: Mapping[str, bytes]) -> None:
    """Raises DataError if reading a tokenizer takes more than it may: each token that is added to it is normalized."""
    try:
        content = contents[TOKENIZER].decode()
        if is_plain(content):
            return
        others = [json.loads(contents[name]) for name in contents.keys() - {CONFIG, TEMPLATE, TOKENIZER}]
        for _ in Confined(content).encode_all([*_texts(others)]):
            pass
    except (DataError, UnicodeError, RecursionError) as error:
        raise DataError(f"{TOKENIZER} and what is beside it are no tokenizer: {reason(error)}") from error


def _texts(value: Any) -> Iterator[str]:
    """Yields the strings in a value, and the keys."""
    if isinstance(value, str):
        yield value
    for each in value if isinstance(value, (list, dict)) else ():
        yield from _texts(each)
    for each in value.values() if isinstance(value, dict) else ():
        yield from _texts(each)


def _without_tokenizer(names: set[str], folder: Path) -> str:
    if not names.isdisjoint(_SLOW):
        convert = _CONVERT.format(folder=str(folder))
        return f'there is no {TOKENIZER}, but a slow tokenizer: convert it with python -c "{convert}"'
    return f"there is no {TOKENIZER}: put the tokenizer of the base into the folder"
