"""Makes a small language model and training data for it: `python make_base.py lm`.

The texts are the docstrings of Python's standard library. It writes:

- lm/base: a Llama with random weights, and a tokenizer of these texts
- lm/texts.jsonl: the first sentences of docstrings
- lm/pairs.jsonl: the words of a function's name as the prompt, its first sentence as the completion
"""

import argparse
import ast
from collections.abc import Iterable, Iterator
import json
from pathlib import Path
import re
import sysconfig
from typing import NamedTuple
import warnings

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
import torch
from transformers import TokenizersBackend
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM

VOCABULARY = 2048
END, PADDING = "<end>", "<pad>"
LONGEST = 128
"""The length of the context in tokens."""
OTHERS = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "turtledemo"}
"""Folders to leave out."""
SENTENCE = re.compile(r"[A-Z][ -~]{8,90}?\.(?= |$)")
"""A short sentence at the beginning of a text."""
WORD_STARTS = re.compile(r"(?<=[a-z])(?=[A-Z])|_+")
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Described(NamedTuple):
    sentence: str
    """The first sentence of a docstring."""
    words: str
    """The words of the function's name, such as `read lines`; empty for a module or class."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a small language model and its training data.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--library", type=Path, default=Path(sysconfig.get_paths()["stdlib"]), metavar="FOLDER")
    parser.add_argument("--size", type=int, default=192, help="dimensions of the model, a multiple of 8")
    options = parser.parse_args()
    found = list(dict.fromkeys(described(options.library)))
    texts = list(dict.fromkeys(each.sentence for each in found))
    pairs = [each for each in found if each.words]
    options.folder.mkdir(parents=True, exist_ok=True)
    write_lines(options.folder / "texts.jsonl", [{"text": text} for text in texts])
    write_lines(
        options.folder / "pairs.jsonl",
        [{"prompt": f"{each.words}:", "completion": f" {each.sentence}"} for each in pairs],
    )
    parameters = make_base(options.folder / "base", texts, size=options.size)
    print(f"{len(texts):,} texts, {len(pairs):,} pairs, a base of {parameters:,} parameters in {options.folder}")


def described(library: Path) -> Iterator[Described]:
    """Yields the first sentences of all docstrings."""
    for path in sorted(library.rglob("*.py")):
        if OTHERS.isdisjoint(path.relative_to(library).parts):
            for node in ast.walk(parsed(path)):
                if isinstance(node, Function | ast.ClassDef | ast.Module):
                    sentence = SENTENCE.match(" ".join((ast.get_docstring(node) or "").split()))
                    name = node.name.strip("_") if isinstance(node, Function) else ""
                    if sentence:
                        yield Described(sentence[0], WORD_STARTS.sub(" ", name).lower())


def parsed(path: Path) -> ast.Module:
    """Returns the program of a file; an empty one for a file that is none."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def write_lines(path: Path, records: Iterable[dict[str, str]]) -> None:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def make_base(folder: Path, texts: list[str], *, size: int) -> int:
    """Writes a base as Hugging Face has it: the model with random weights, and its tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END, PADDING],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    whole = TokenizersBackend(tokenizer_object=tokenizer, eos_token=END, pad_token=PADDING)
    whole.save_pretrained(folder)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(whole),
            hidden_size=size,
            intermediate_size=size * 8 // 3,
            num_hidden_layers=4,
            num_attention_heads=4,
            max_position_embeddings=LONGEST,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=whole.eos_token_id,
            pad_token_id=whole.pad_token_id,
        )
    )
    model.save_pretrained(folder)
    return model.num_parameters()


if __name__ == "__main__":
    main()
