"""Imports what language models need, which takes four seconds: once, before the tests' processes are forked."""

from importlib import import_module

from torchyard.models.library import configure_transformers

configure_transformers()
for name in ("transformers.models.llama.modeling_llama", "peft"):
    import_module(name)
