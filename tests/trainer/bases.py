"""Makes small bases: language models with random weights and tokenizers, in folders as Hugging Face has them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests import forks
from torchyard.models.library import configure_transformers

forks.preload("tests.trainer.transformers_loaded")

TEXTS = ("The yard is open at noon. ", "A short film, and a fine one. ", "Who asks a question? ") * 8
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""A chat template whose turns end with `<|end|>`."""
SPECIAL = ("<pad>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
END = "<|end|>"


def tiny_base(
    folder: Path,
    *,
    kind: str = "llama",
    template: str | None = TEMPLATE,
    texts: Sequence[str] = TEXTS,
    vocabulary: int = 320,
    positions: int = 256,
    seed: int = 7,
    **options: Any,
) -> Path:
    """Writes a base of the type `kind` with two layers of 32 dimensions. Returns the folder.

    `options` are keys of its configuration, instead of the sizes here.
    """
    configure_transformers()
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoConfig, AutoModelForCausalLM, TokenizersBackend

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    made = TokenizersBackend(tokenizer_object=tokenizer, pad_token="<pad>", eos_token=END, chat_template=template)
    made.save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if hasattr(AutoConfig.for_model(kind), "num_key_value_heads"):
        sizes["num_key_value_heads"] = 2
    if kind == "gpt2":
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 64}
    tokens = {"vocab_size": len(made), "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1}
    config = AutoConfig.for_model(kind, **{**sizes, **tokens, "max_position_embeddings": positions, **options})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    return folder
