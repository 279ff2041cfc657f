"""Checks, before the helper answers anyone, that this host can do what strict isolation needs."""

from contextlib import ExitStack
import os
from pathlib import Path
import subprocess

from torchyard.contract.errors import ConfigError
from worker.sandbox.helper import bubblewrap, mounts
from worker.sandbox.helper.bubblewrap import Box
from worker.sandbox.helper.config import Config

_SYSTEM = ("/usr", "/bin", "/lib", "/lib64")


def check_host(config: Config) -> list[str]:
    """Returns what is lacking. Raises ConfigError if no attempt could start. Forks, so no other thread may run."""
    _check_mounts(config)
    _check_bubblewrap(config)
    lacks = config.cgroups.prepare()
    return lacks if config.network == "none" else [*lacks, "a network of its own (--network none)"]


def _check_mounts(config: Config) -> None:
    uid = config.state.uids[0]
    try:
        with ExitStack() as stack:
            owners = stack.enter_context(mounts.owners_swapped((uid, uid), config.service))
            folder = os.open(config.data_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, folder)
            os.close(mounts.clone(folder, owners=owners, read_only=True))
    except OSError as error:
        raise ConfigError(
            f"strict isolation cannot give files in {config.data_dir} to the users of jobs: {error.strerror}. It needs"
            " Linux 5.12 and, for instance, ext4, XFS or Btrfs"
        ) from None


def _check_bubblewrap(config: Config) -> None:
    """Starts a program as the attempts will be."""
    uid = config.state.uids[0]
    system = [path for path in map(Path, _SYSTEM) if path.exists()]
    box = Box(env={}, cwd="/", network=config.network, shm=1 << 20, system=system)
    command = [config.bwrap, *bubblewrap.options(box), "--", "/usr/bin/true"]
    done = subprocess.run(
        command, user=uid, group=uid, extra_groups=[], env={}, cwd="/", capture_output=True, check=False
    )
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip()
        raise ConfigError(f"bubblewrap cannot isolate a program here, as the uid {uid}: {message}")
