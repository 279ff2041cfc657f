"""`python -P read_folders.py QUESTIONS [PACKAGES]`: prints what transformers makes of exported folders, as JSON.

QUESTIONS is a file: texts and folders of classifiers, and ids and folders of language models. PACKAGES: a folder with
another transformers than that of this Python.
"""

from importlib.metadata import version
import json
import logging
from pathlib import Path
import sys


def main() -> None:
    sys.path[:0] = sys.argv[2:]
    logging.disable()
    asked = json.loads(Path(sys.argv[1]).read_text())
    answers = {
        "version": version("transformers"),
        "texts": {name: read_texts(folder, asked["samples"]) for name, folder in asked["texts"].items()},
        "languages": {name: read_language(folder, asked) for name, folder in asked["languages"].items()},
    }
    print(json.dumps(answers))  # noqa: T201 its answer


def read_texts(folder: str, samples: list[str]) -> tuple[list[list[int]], list[list[float]]]:
    """Returns the ids of each sample, and the logits of all of them as one batch."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True).eval()
    with torch.no_grad():
        logits = model(**tokenizer(samples, padding=True, truncation=True, return_tensors="pt")).logits
    return tokenizer(samples, truncation=True)["input_ids"], logits.tolist()


def read_language(folder: str, asked: dict[str, list[str]]) -> tuple[list[list[int]], str, list[float]]:
    """Returns the ids of each sample, a rendered conversation, and the logits behind some ids."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([asked["ids"]]), use_cache=False).logits[0, -1]
    conversation = [{"role": "user", "content": "Who?"}]
    rendered = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    return [tokenizer.encode(sample) for sample in asked["samples"]], rendered, logits.tolist()


if __name__ == "__main__":
    main()
