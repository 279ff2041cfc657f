"""Checks PyTorch in a process of its own: the import takes seconds, and may crash."""

import json
import re
import subprocess
import sys
from typing import Any

from worker.doctor.findings import Finding, failed, ok, warning

_FROM, _BEFORE = (2, 11), (2, 15)
_TIMEOUT_S = 120
_INSTALL = "install the versions of requirements.lock: uv pip install --require-hashes -r requirements.lock"


def check_torch(*, gpus: int) -> Finding:
    """`gpus`: the number of GPUs of this host."""
    try:
        argv = [sys.executable, "-P", "-m", "trainer.probe"]
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return failed(
            "torch",
            f"the import takes longer than {_TIMEOUT_S} s",
            "check for a slow disk or a stuck GPU driver (dmesg)",
        )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return failed("torch", f"cannot be imported: {last[:300]}", _INSTALL)
    return judge(json.loads(done.stdout.splitlines()[-1]), gpus=gpus)


def judge(torch: dict[str, Any], *, gpus: int) -> Finding:
    """Judges what `trainer.probe` printed."""
    fact = _fact(torch)
    if not torch["gloo"]:
        return failed("torch", f"{fact}: no Gloo, which ranks on CPUs need", _INSTALL)
    if gpus and torch["cuda"] is None:
        return failed("torch", f"{fact}: a build for CPUs, on a host with GPUs", f"{_INSTALL} (the CUDA build)")
    if gpus and not torch["available"]:
        advice = f"update the NVIDIA driver to one for CUDA {torch['cuda']}, and check CUDA_VISIBLE_DEVICES"
        return failed("torch", f"{fact}: CUDA cannot be used: {torch['why']}", advice)
    if gpus and not torch["nccl"]:
        return failed("torch", f"{fact}: no NCCL, which ranks on GPUs need", _INSTALL)
    version = tuple(int(part) for part in re.findall(r"\d+", torch["version"])[:2])
    if not _FROM <= version < _BEFORE:
        return warning("torch", f"{fact}: not among the supported ones, 2.11 to 2.14", _INSTALL)
    return ok("torch", fact)


def _fact(torch: dict[str, Any]) -> str:
    cuda = f"CUDA {torch['cuda']}, {torch['devices']} GPUs usable" if torch["cuda"] else "no CUDA"
    backends = ", ".join([*([f"NCCL {torch['nccl']}"] if torch["nccl"] else []), *(["Gloo"] if torch["gloo"] else [])])
    return f"{torch['version']}, {cuda}, {backends or 'no backend'}"
