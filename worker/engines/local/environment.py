"""Selects the variables of the worker that its jobs inherit: no setting of the service, and no credential."""

from collections.abc import Mapping
import re

from torchyard.host.failpoints import VARIABLE as FAILPOINTS
from worker.host import job_variables
from worker.host.job_variables import VARIABLE as JOB_VARIABLES

_INHERITED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|SSL_CERT_FILE|SSL_CERT_DIR"
    r"|LD_LIBRARY_PATH|NVIDIA_[A-Z_]+|CUDA_HOME|CUDA_PATH"
    r"|XDG_CACHE_HOME|TORCH_HOME|TORCHINDUCTOR_CACHE_DIR|TRITON_CACHE_DIR|HF_HOME|HF_HUB_CACHE|HF_HUB_OFFLINE"
    rf"|{JOB_VARIABLES}"  # so that a node of a cluster can select them again
    rf"|{FAILPOINTS}"  # only tests set it, for all programs of an attempt
)


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of `environ` that a job inherits, with those that the operator gives to all jobs."""
    return {
        **{name: value for name, value in environ.items() if _INHERITED.fullmatch(name)},
        **job_variables.given(environ),
    }
