"""The format `hf`: a folder that transformers loads, a model with its tokenizer."""

from pathlib import Path

from torch import Tensor

from torchyard.models import text
from torchyard.models.exporting.graphs import Run, Trial
from torchyard.models.library import configure_transformers
from torchyard.models.texts import TextClassifier
from torchyard.run.tensors import safetensors

FILES = frozenset({"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"})


def content(model: TextClassifier) -> dict[str, bytes]:
    """Returns the files of the folder."""
    config = text.config_of(model.module)  # made anew: no file can have told transformers to run something
    config |= {"label2id": {name: index for index, name in enumerate(model.classes)}}
    files = text.transformers_files(config, model.tokenizer, max_length=model.preprocessing["max_length"])
    return {**files, "model.safetensors": safetensors(model.module.state_dict(), metadata={"format": "pt"})}


def opened(path: Path) -> Run:
    """Returns the folder's tokenizer and model as a function of texts."""
    configure_transformers()
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    model = AutoModelForSequenceClassification.from_pretrained(path, local_files_only=True).eval()

    def run(trial: Trial) -> Tensor:
        encoded = tokenizer([*trial.sources], padding=True, truncation=True, return_tensors="pt")
        return model(**encoded).logits

    return run
