"""Imports and prepares what language models need, which takes seconds: once, before the tests' processes are forked."""

from importlib import import_module

from torchyard.models.library import configure_transformers

configure_transformers()
for name in ("transformers.models.llama.modeling_llama", "peft"):
    import_module(name)
import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("llama")  # it keeps 868 patterns
