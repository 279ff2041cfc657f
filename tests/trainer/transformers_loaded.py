"""Imports what language models need. Test processes are forked after it, so that these seconds are spent once."""

from importlib import import_module

from torchyard.models.library import configure_transformers

configure_transformers()
for name in ("transformers.models.llama.modeling_llama", "peft"):
    import_module(name)
mapping = import_module("transformers.conversion_mapping")
mapping.get_checkpoint_conversion_mapping("llama")  # caches 868 compiled patterns
