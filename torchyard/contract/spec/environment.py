"""The variables of a job's ranks that its spec sets."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from torchyard.contract.attempts.rundir import PYTHONPATH
from torchyard.contract.bounds import VARIABLE_NAME
from torchyard.contract.wire.schema import Schema
from torchyard.contract.wire.wording import allowing

MOST_SECRETS_BYTES = 1 << 16
"""Bytes of the values of all secrets that a job names: whatever it writes is searched for each of them."""
_KEY = allowing(r"^[A-Za-z_][A-Za-z0-9_]{0,199}$", "1 to 200 letters, digits and `_`, of which the first is no digit")
_VARIABLE = re.compile(_KEY)
_RESERVED = re.compile(
    r"TORCHYARD_.*|TORCHELASTIC_.*|LD_.*|MASTER_.*|GROUP_.*|ROLE_.*|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER"
    r"|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|PYTHONHOME|PYTHONSTARTUP|PYTHONUNBUFFERED|PYTHONSAFEPATH"
)


def is_reserved(name: str) -> bool:
    """Returns whether the service alone sets a variable of this name."""
    return _RESERVED.fullmatch(name) is not None or name == PYTHONPATH


class SecretRef(Schema):
    """A reference to a secret of the job's owner, as the value of a variable."""

    secret: Annotated[str, Field(pattern=VARIABLE_NAME)]


def _are_the_users(env: dict[str, Any]) -> dict[str, Any]:
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name[:200]!r} is not a name of an environment variable")
        if _RESERVED.fullmatch(name):
            raise ValueError(f"{name} is set by the service and cannot be chosen")
        if name == PYTHONPATH:
            _check_folders(value)
    return env


def _check_folders(value: Any) -> None:
    folders = value.split(":") if isinstance(value, str) else [""]
    if any(not folder or folder.startswith("/") or ".." in folder.split("/") for folder in folders):
        raise ValueError(
            "PYTHONPATH may name folders of the code, with `:` between them: relative, without `..`, such as `.:src`"
        )


Env = Annotated[
    dict[str, Annotated[str, Field(max_length=32_768)] | SecretRef],
    Field(
        max_length=256,
        description="environment variables; a value is a text or `{secret: NAME}`",
        json_schema_extra={"propertyNames": {"pattern": _KEY}},
    ),
    AfterValidator(_are_the_users),
]


_THREADS = (
    r"(OMP|MKL|OPENBLAS|NUMEXPR|VECLIB_MAXIMUM)_NUM_THREADS|OMP_(PROC_BIND|PLACES|SCHEDULE)|KMP_(AFFINITY|BLOCKTIME)"
)
_TORCH = (
    r"PYTORCH_(CUDA_)?ALLOC_CONF|TORCH_SHOW_CPP_STACKTRACES|TORCH_DISTRIBUTED_DEBUG|TORCH_CPP_LOG_LEVEL"
    r"|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE|CUBLAS_WORKSPACE_CONFIG|CUDA_LAUNCH_BLOCKING|CUDA_MODULE_LOADING"
    r"|CUDNN_DETERMINISTIC|NVIDIA_TF32_OVERRIDE"
    r"|TORCH_NCCL_(ASYNC_ERROR_HANDLING|BLOCKING_WAIT|ENABLE_MONITORING|HEARTBEAT_TIMEOUT_SEC|TRACE_BUFFER_SIZE"
    r"|AVOID_RECORD_STREAMS|DUMP_ON_TIMEOUT|HIGH_PRIORITY)"
)
_NCCL = (
    r"NCCL_(DEBUG|DEBUG_SUBSYS|ALGO|PROTO|BUFFSIZE|NTHREADS|MIN_NCHANNELS|MAX_NCHANNELS|MIN_CTAS|MAX_CTAS|CGA_CLUSTER_SIZE"
    r"|P2P_DISABLE|P2P_LEVEL|SHM_DISABLE|IB_DISABLE|NVLS_ENABLE|CUMEM_ENABLE|LAUNCH_MODE|CROSS_NIC|TIMEOUT)"
)
_LIBRARIES = (
    r"TOKENIZERS_PARALLELISM|TRANSFORMERS_VERBOSITY|HF_TOKEN|HF_HUB_(OFFLINE|DISABLE_TELEMETRY|DOWNLOAD_TIMEOUT)"
)
_ALLOWED = re.compile("|".join((_THREADS, _TORCH, _NCCL, _LIBRARIES, "TZ")))


def is_allowed(name: str) -> bool:
    """Returns whether the job of a recipe may set this variable."""
    return _ALLOWED.fullmatch(name) is not None
