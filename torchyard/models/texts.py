"""Predicts the classes of texts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BaseModel, Field
from tokenizers import Tokenizer
import torch
from torch import Tensor, nn

from torchyard.contract.errors import DataError
from torchyard.contract.recipes import TextClassification
from torchyard.models import library, text
from torchyard.models.checkpoint import Classes, raise_unless_failed, reason
from torchyard.models.confined import Confined, is_plain
from torchyard.models.model import Model
from torchyard.models.predictions import ClassPrediction, class_predictions
from torchyard.models.textlines import lines
from torchyard.models.tokenizer import TokenizerFiles
from torchyard.run.accelerator import is_accelerator

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MOST_TOKENIZER_CHARACTERS = 64 << 20
SHAPE = (
    *("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("max_position_embeddings", "type_vocab_size", "hidden_act", "layer_norm_eps", "initializer_range"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "position_embedding_type"),
)
"""The keys of a model's configuration that say what is computed. A state's other keys are not given to transformers."""
LIKE_BERT = ("bert", "camembert", "roberta", "xlm-roberta")
"""The types that have no keys but these. Of others, `library.own_keys` are given, too."""


class _Tokenizer(BaseModel, frozen=True, strict=True):
    content: Annotated[str, Field(max_length=MOST_TOKENIZER_CHARACTERS)]
    roles: dict[str, str]


class TextMetadata(BaseModel, frozen=True, strict=True):
    """What the checkpoint of a model of texts says about its inputs."""

    classes: Classes
    tokenizer: _Tokenizer
    model_config_: Annotated[dict[str, Any], Field(alias="model_config")]


class TextClassifier(Model[list[int], ClassPrediction]):
    """A classifier of texts. Its inputs are `input_ids` and `attention_mask` (samples, tokens), its logits (samples,
    classes).
    """

    def __init__(
        self, module: nn.Module, *, state: Mapping[str, Any], config: TextClassification, device: torch.device
    ) -> None:
        super().__init__(module, state=state, config=config, device=device)
        self._max_length = config.data.max_length
        found = _metadata(state).tokenizer
        self.tokenizer = TokenizerFiles(found.content, found.roles)
        self._encoder = _encoder_of(self.tokenizer, max_length=self._max_length)
        self._padding = self._checked_padding(text.own_config(module))

    @property
    def preprocessing(self) -> dict[str, Any]:
        return {"max_length": self._max_length, "tokens": self._encoder.size}

    def listed(self, source: Any) -> tuple[list[Any], bool]:
        """Returns the single texts of `source`. A `Path` is a file with one text a line; blank lines are skipped."""
        if isinstance(source, (list, tuple)):
            sources = cast("list[Any]", source)
            return [single for item in sources for single in self.listed(item)[0]], True
        return (lines(source), True) if isinstance(source, Path) else ([source], False)

    def read(self, source: Any) -> list[int]:
        if not isinstance(source, str):
            raise DataError(f"a text is a string, and a file of texts a Path, not {type(source).__name__}")
        content = source.strip()  # as in training
        if not content:
            raise DataError("a text is empty")
        try:
            tokens = self._encoder.encode(content)
        except (TypeError, UnicodeEncodeError) as error:
            raise DataError("a text holds half of a surrogate pair, which is not a character") from error
        except DataError as error:
            raise DataError(f"the tokenizer cannot read a text: {error.message}") from error
        except BaseException as error:
            raise_unless_failed(error)
            raise DataError(f"the tokenizer cannot read a text: {reason(error)}") from error
        if not tokens:
            raise DataError("a text has no tokens")
        return tokens

    def collate(self, read: Sequence[list[int]]) -> dict[str, Tensor]:
        multiple = 8 if is_accelerator(self.device) else 1
        width = -(-max(map(len, read)) // multiple) * multiple
        ids = torch.tensor([[*tokens, *[self._padding] * (width - len(tokens))] for tokens in read])
        mask = torch.arange(width) < torch.tensor([[len(tokens)] for tokens in read])
        return {"input_ids": ids.to(self.device), "attention_mask": mask.to(self.device)}

    def interpret(self, sources: Sequence[Any], read: Sequence[list[int]], logits: Tensor) -> list[ClassPrediction]:
        return class_predictions(sources, logits, self.classes)

    def _checked_padding(self, config: "PreTrainedConfig") -> int:
        """Returns the padding token. Raises DataError if the model does not take all that the tokenizer gives."""
        padding: Any = config.pad_token_id
        highest = self._encoder.highest
        if type(padding) is not int or max(highest, padding) >= config.vocab_size:
            raise DataError(
                f"its tokens are up to {highest}, and {padding} for padding; its model has {config.vocab_size}"
            )
        if self._max_length > text.longest(config):
            raise DataError(f"data.max_length is {self._max_length}, its model takes {text.longest(config)} tokens")
        return padding


def build(config: TextClassification, state: Mapping[str, Any]) -> nn.Module:
    """Returns the module that a state describes, with random weights. Imports and downloads nothing that it names.

    Raises DataError.
    """
    found = _metadata(state)
    kind = found.model_config_.get("model_type")
    own = library.own_keys(kind) if kind in text.FAMILY and kind not in LIKE_BERT else ()
    shape = {key: found.model_config_[key] for key in (*SHAPE, *own) if key in found.model_config_}
    if kind not in text.FAMILY:
        raise DataError(f"its model_type is {str(kind)[:100]!r}, not one of {', '.join(text.FAMILY)}")
    layers = shape.get("num_hidden_layers", shape.get("n_layers"))
    if not isinstance(layers, int) or not 0 < layers <= len(state["model"]):
        raise DataError(f"it has {len(state['model'])} tensors, and says that it has {str(layers)[:100]} layers")
    shape |= {"id2label": dict(enumerate(found.classes)), "problem_type": "single_label_classification"}
    return text.rebuild(shape)


class _Own:
    """A tokenizer of the kind that a training makes, in this process."""

    def __init__(self, encoder: Tokenizer) -> None:
        self._encoder = encoder
        self.size = encoder.get_vocab_size()
        self.highest = max(encoder.get_vocab().values(), default=0)

    def encode(self, text: str) -> list[int]:
        return self._encoder.encode(text).ids


def _encoder_of(tokenizer: TokenizerFiles, *, max_length: int) -> _Own | Confined:
    if is_plain(tokenizer.content):
        return _Own(tokenizer.encoder(max_length=max_length))
    return Confined(tokenizer.content, max_length=max_length)


def _metadata(state: Mapping[str, Any]) -> TextMetadata:
    return TextMetadata.model_validate(
        {key: state[key] for key in ("classes", "tokenizer", "model_config") if key in state}
    )
