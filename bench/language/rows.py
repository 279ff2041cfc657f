"""Writes the trainer's sequences in their order, so that another program trains on the same ones."""

from collections.abc import Iterator
import json

from safetensors.torch import save_file
import torch

from bench.language.settings import LanguageSettings, job
from torchyard.contract.recipes.causal import CausalLm
from torchyard.contract.spec.spec import parse_spec
from torchyard.models import lora
from torchyard.models.base import load_model, open_base
from torchyard.models.causal import is_adapter
from trainer.data.sequences import Sequences, load_sequences
from trainer.sampler import TrainSampler

UNCOUNTED = -100


def write(settings: LanguageSettings) -> list[int]:
    """Writes the rows of all steps, each a list of documents: ids and labels. Returns the tokens of each step.

    With `method: lora`, an adapter with which both begin is written, too.
    """
    config = parse_spec(job(settings)).config
    assert isinstance(config, CausalLm)
    base = open_base(settings.base)
    sequences = load_sequences(
        settings.examples,
        config.data,
        tokenizer=base.tokenizer,
        chat_template=base.chat_template,
        vocabulary=base.config.vocab_size,
        base=str(base.folder),
    ).train
    sampler = TrainSampler(
        len(sequences), global_batch=settings.batch, batch_size=settings.micro_batch, seed=settings.seed
    )
    windows = sampler.steps(1)[: settings.all_steps]
    assert len(windows) == settings.all_steps, f"{len(windows)} steps in an epoch, not {settings.all_steps}"
    steps = [torch.cat([part.indices for part in window.micro_batches]).tolist() for window in windows]
    rows = [list(_documents(sequences, row)) for step in steps for row in step]
    settings.rows.write_text(json.dumps(rows))
    if settings.method == "lora":
        torch.manual_seed(settings.seed)
        module = load_model(base)
        lora.inject(module, config.model.lora)
        save_file({name: value for name, value in module.state_dict().items() if is_adapter(name)}, settings.adapter)
    return [int(sequences.lengths[step].sum()) for step in steps]


def _documents(sequences: Sequences, row: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yields ids and labels of each document of a row, out of the batch that the model gets."""
    (batch,) = sequences.batches([torch.tensor([row])], device=torch.device("cpu"))
    length = int(sequences.lengths[row])
    ids = batch.inputs["input_ids"].flatten()[:length]
    labels = torch.full_like(ids, UNCOUNTED)
    labels[batch.inputs["places"] + 1] = batch.inputs["labels"]
    starts = (batch.inputs["position_ids"].flatten()[:length] == 0).nonzero().flatten()
    lengths = torch.diff(starts, append=torch.tensor([length])).tolist()
    for own, known in zip(ids.split(lengths), labels.split(lengths), strict=True):
        yield own.tolist(), known.tolist()
