"""Exported folders in transformers 4 and 5: the ids of training, and the logits."""

from dataclasses import dataclass
import json
import os
from pathlib import Path
import re
import subprocess
import sys
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
import torch

from tests.torchyard.models.languages import whole
from tests.torchyard.models.test_library import BERT, TEXTS
from tests.trainer.bases import tiny_base
from tests.trainer.rendering import rendered_here
import torchyard
from torchyard.contract.recipes import HF_CAUSAL
from torchyard.models import Generator, export, text
from torchyard.models.tokenizer import TokenizerFiles
from torchyard.run.tensors import safetensors
from trainer.data.tokens import train_tokenizer

HERE = Path(__file__).parent
UNREACHABLE = re.compile(r"error sending request|Failed to fetch|dns error|Connection refused|not found in the package")
CORPUS = ["a fine film is a fine film", "dull, dull film"] * 20
SAMPLES = ["fine", "a fine film", " Fine  film", "dull, <s> 😀", "good<pad>bad </s> [SEP]", "film " * 80]
LENGTH = 32
IDS = [*range(5, 45)]
ROLES = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
DEFAULT = {"rope_type": "default", "rope_theta": 500.0}
SCALED = {"rope_type": "linear", "rope_theta": 700.0, "factor": 2.0}
LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 700.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
PARTIAL = {**DEFAULT, "partial_rotary_factor": 0.5}
LANGUAGES: dict[str, tuple[str, dict[str, Any]]] = {
    **{kind: (kind, DEFAULT) for kind in HF_CAUSAL if kind != "gpt2"},
    **{kind: (kind, PARTIAL) for kind in ("gpt_neox", "phi3", "stablelm")},
    "gemma3_text": ("gemma3_text", {"sliding_attention": DEFAULT, "full_attention": {**DEFAULT, "rope_theta": 900.0}}),
    "gpt2": ("gpt2", {}),
    "llama, scaled": ("llama", SCALED),
    "llama 3": ("llama", LLAMA_3),
}
"""By name: a type, and its rotary positions, whose names are others in transformers 4."""


@dataclass(frozen=True)
class Written:
    """Asks of exported folders, and what this library answers to the same inputs."""

    questions: Path
    texts: dict[str, tuple[list[list[int]], list[list[float]]]]
    languages: dict[str, tuple[list[list[int]], list[float]]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("written")
    trained = train_tokenizer(CORPUS, vocabulary=300)
    cases = {kind: (kind, options, trained) for kind, options in TEXTS.items()}
    cases |= {name: ("bert", BERT, files) for name, files in of_others().items()}
    texts = {name: write_texts(folder / name, *case) for name, case in cases.items()}
    with rendered_here():
        languages = {name: write_language(folder / f"language {name}", *case) for name, case in LANGUAGES.items()}
    asked = {
        "samples": SAMPLES,
        "ids": IDS,
        "texts": {name: str(folder / name) for name in texts},
        "languages": {name: str(folder / f"language {name}" / "it") for name in languages},
    }
    questions = folder / "questions.json"
    questions.write_text(json.dumps(asked))
    return Written(questions, texts, languages)


def of_others() -> dict[str, TokenizerFiles]:
    """Returns tokenizers as published weights have them: BERT, XLM-RoBERTa, and RoBERTa, which adds no space."""
    pieces = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer(lowercase=True)
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pieces.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=120, special_tokens=[*ROLES.values()]))
    unigram = Tokenizer(models.Unigram())
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.train_from_iterator(
        CORPUS, trainers.UnigramTrainer(vocab_size=60, special_tokens=[*ROLES.values()], unk_token="[UNK]")
    )
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    plain.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=290, special_tokens=[*ROLES.values()], initial_alphabet=alphabet)
    )
    found = {"wordpiece": pieces, "metaspace": unigram, "without space": plain}
    for tokenizer in found.values():
        ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ids)
    return {name: TokenizerFiles(tokenizer.to_str(), ROLES) for name, tokenizer in found.items()}


def write_texts(
    folder: Path, kind: str, options: dict[str, Any], tokenizer: TokenizerFiles
) -> tuple[list[list[int]], list[list[float]]]:
    """Writes a folder as the export does. Returns the ids and the logits of the samples, each alone."""
    torch.manual_seed(0)
    classes = ["a", "b", "c"]
    model = text.build(
        f"hf/{kind}", vocabulary=tokenizer.vocabulary, classes=classes, dropout=0.0, options=options
    ).eval()
    files = text.transformers_files(text.config_of(model), tokenizer, max_length=LENGTH)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "model.safetensors").write_bytes(safetensors(model.state_dict(), metadata={"format": "pt"}))
    encoder = tokenizer.encoder(max_length=LENGTH)
    ids = [encoder.encode(sample).ids for sample in SAMPLES]
    with torch.no_grad():
        logits = [
            model({"input_ids": torch.tensor([one]), "attention_mask": torch.ones(1, len(one)) > 0}) for one in ids
        ]
    return ids, [one[0].tolist() for one in logits]


def write_language(folder: Path, kind: str, rotary: dict[str, Any]) -> tuple[list[list[int]], list[float]]:
    """Exports a language model. Returns the ids of the samples, and the logits behind `IDS`."""
    options: dict[str, Any] = {"rope_parameters": rotary} if rotary else {}
    base = tiny_base(folder / "base", kind=kind, **options)
    torch.save(whole(base, form="messages"), folder / "best.pt")
    model = torchyard.load(folder / "best.pt", device="cpu")
    assert isinstance(model, Generator)
    export(model, to="hf", path=folder / "it")
    with torch.no_grad():
        logits = model.module(input_ids=torch.tensor([IDS]), use_cache=False).logits[0, -1]
    return [model.prompts.tokenizer.encode(sample) for sample in SAMPLES], logits.tolist()


@pytest.fixture(scope="module")
def packages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Returns the folder with transformers 4 and what it needs of other versions, or none: transformers 5 is here."""
    if request.param == 5:
        return []
    folder = tmp_path_factory.mktemp("packages")
    install = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--python", sys.executable]
    lock = ["--require-hashes", "--no-deps", "--requirement", str(HERE / "transformers4.lock")]
    done = subprocess.run([*install, "--target", str(folder), *lock], capture_output=True, text=True, check=False)
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"no package index is reachable: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return [str(folder)]


@pytest.mark.thorough
@pytest.mark.parametrize(("packages", "version"), [(4, "4."), (5, "5.")], indirect=["packages"])
def test_a_folder_has_the_ids_of_training_and_its_logits(written: Written, packages: list[str], version: str) -> None:
    environ = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-P", str(HERE / "read_folders.py"), str(written.questions), *packages]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["version"].startswith(version)
    for name, (ids, logits) in written.texts.items():
        theirs = found["texts"][name]
        assert theirs[0] == ids, name
        torch.testing.assert_close(torch.tensor(theirs[1]), torch.tensor(logits), atol=1e-5, rtol=1e-5, msg=name)
    for name, (ids, logits) in written.languages.items():
        theirs = found["languages"][name]
        assert theirs[:2] == [ids, "<|user|>Who?<|end|><|assistant|>"], name
        torch.testing.assert_close(torch.tensor(theirs[2]), torch.tensor(logits), atol=1e-5, rtol=1e-5, msg=name)
