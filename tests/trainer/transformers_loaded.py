"""Imports what language models need, which takes four seconds: once, before the tests' processes are forked."""

from torchyard.models.library import configure_transformers

configure_transformers()

import peft  # noqa: E402, F401
import transformers.models.llama.modeling_llama  # noqa: E402, F401
