"""What of the worker's environment its jobs may see: nothing of the service's own, and no credential."""

from collections.abc import Mapping
import re

from torchyard.contract.failpoints import VARIABLE as FAILPOINTS

_INHERITED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|SSL_CERT_FILE|SSL_CERT_DIR"
    r"|LD_LIBRARY_PATH|NVIDIA_[A-Z_]+|CUDA_HOME|CUDA_PATH"
    r"|XDG_CACHE_HOME|TORCH_HOME|TORCHINDUCTOR_CACHE_DIR|TRITON_CACHE_DIR|HF_HOME|HF_HUB_CACHE|HF_HUB_OFFLINE"
    rf"|{FAILPOINTS}"  # which only a test sets, to break all programs of an attempt as one
)


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of `environ` that a job gets."""
    return {name: value for name, value in environ.items() if _INHERITED.fullmatch(name)}
