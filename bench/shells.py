"""Measures shells and programs in a running job beside those of `ssh localhost`, in turns.

    python -m bench.shells JOB [--times N] [--mib N]

JOB is a job of the service that the command line finds. sshd must be installed: it is started for the run, on a port of
loopback, with keys of its own. Prints for both: the time from a key to its echo in a terminal (median, ms), MB/s and
CPU-seconds of the client per GiB in each direction, and how long `exec JOB true` takes beside `whoami`.
"""

import argparse
from collections.abc import Generator, Sequence
from contextlib import contextmanager
import getpass
import os
from pathlib import Path
import pty
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

OURS = [sys.executable, "-P", "-m", "torchyard"]
_READY = b"ready-to-echo"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", help="name or id of a running job")
    parser.add_argument("--times", type=int, default=5, help="repeats (default 5)")
    parser.add_argument("--mib", type=int, default=512, help="MiB to send each way (default 512)")
    args = parser.parse_args()
    with _sshd() as ssh:
        ways = {"torchyard": ([*OURS, "exec"], [args.job]), "ssh localhost": (ssh, ["localhost"])}
        echoes: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(args.times):
            for name, (command, target) in ways.items():
                echoes[name].append(_echo_ms([*command, "-tt" if "ssh" in name else "--tty", *target]))
        for name, found in echoes.items():
            print(f"{name}: key to echo {statistics.median(found):.1f} ms ({min(found):.1f} to {max(found):.1f})")
        for name, (command, target) in ways.items():
            for way, words in (
                ("to the job", "cat > /dev/null"),
                ("from the job", f"head -c {args.mib << 20} /dev/zero"),
            ):
                speed, cpu = _carry([*command, *target, *_shell(name, words)], mib=args.mib, sends=way == "to the job")
                print(f"{name}: {way} {speed:.0f} MB/s, {cpu:.2f} CPU-s per GiB of this side")
    starts = {"exec JOB true": ["exec", args.job, "true"], "whoami": ["whoami"]}
    seconds: dict[str, list[float]] = {name: [] for name in starts}
    for _ in range(2 * args.times):
        for name, words in starts.items():
            began = time.monotonic()
            subprocess.run([*OURS, *words], check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            seconds[name].append(time.monotonic() - began)
    for name, found in seconds.items():
        print(f"{name}: {statistics.median(found):.2f} s ({min(found):.2f} to {max(found):.2f}, n={len(found)})")


def _shell(name: str, words: str) -> list[str]:
    return [words] if "ssh" in name else ["--", "sh", "-c", words]


def _echo_ms(command: Sequence[str]) -> float:
    """Returns the median time from a key to its echo by a program that reads a terminal."""
    program = f"stty raw -echo; echo {_READY[:5].decode()}''{_READY[5:].decode()}; exec cat"
    pid, terminal = pty.fork()
    if pid == 0:
        words = [program] if "-tt" in command else ["sh", "-c", program]
        os.execvp(command[0], [*command, *words])
    shown = b""
    while _READY not in shown:
        shown += os.read(terminal, 4096)
    time.sleep(0.2)
    found: list[float] = []
    for number in range(100):
        key = bytes([ord("a") + number % 26])
        began = time.perf_counter()
        os.write(terminal, key)
        while key not in os.read(terminal, 4096):
            pass
        found.append((time.perf_counter() - began) * 1000)
        time.sleep(0.005)
    os.close(terminal)
    os.waitpid(pid, 0)
    return statistics.median(found)


def _carry(command: Sequence[str], *, mib: int, sends: bool) -> tuple[float, float]:
    """Returns MB/s, and the CPU-seconds of the command for a GiB."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with Path("/dev/zero").open("rb") as zero:
        feeding = (
            subprocess.Popen(["head", "-c", str(mib << 20)], stdin=zero, stdout=subprocess.PIPE) if sends else None
        )
        stdin = subprocess.DEVNULL if feeding is None else feeding.stdout
        subprocess.run(command, stdin=stdin, stdout=subprocess.DEVNULL, check=True)
        if feeding is not None:
            feeding.wait()
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (mib << 20) / seconds / 1e6, cpu * 1024 / mib


@contextmanager
def _sshd() -> Generator[list[str]]:
    """Runs sshd for the duration of the block, and yields the command of ssh that reaches it."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise SystemExit("sshd is not installed")
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as free:
        port, folder = free.getsockname()[1], Path(name)
        free.close()
        for key in ("host", "own"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
        Path("/run/sshd").mkdir(exist_ok=True)
        options = [f"Port={port}", "ListenAddress=127.0.0.1", f"HostKey={folder}/host", "StrictModes=no", "UsePAM=no"]
        options += [f"AuthorizedKeysFile={folder}/own.pub", "PidFile=none"]
        server = subprocess.Popen([program, "-D", "-f", "/dev/null", *(f"-o{each}" for each in options)])
        try:
            while socket.socket().connect_ex(("127.0.0.1", port)):
                time.sleep(0.05)
            known = ["-oStrictHostKeyChecking=accept-new", f"-oUserKnownHostsFile={folder}/known", "-oLogLevel=ERROR"]
            yield ["ssh", "-F", "none", "-p", str(port), "-l", getpass.getuser(), "-i", f"{folder}/own", *known]
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
