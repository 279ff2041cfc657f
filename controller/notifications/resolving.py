"""Asks the system for the addresses of a name, in a process of its own.

`getaddrinfo` takes as long as the name servers of whoever owns the name let it, and a thread cannot be ended. A process
can: none is left when the time is over, and there are no more of them than senders.
"""

import ipaddress
import os
import signal
import socket
import subprocess
import sys


def resolved(name: str, timeout_s: float) -> list[str]:
    """Returns the IP addresses of a name, or of an address itself. Raises OSError, TimeoutError if it takes longer."""
    if _is_address(name):
        return [name]
    command = [sys.executable, "-P", "-m", "controller.notifications.resolving", name, str(timeout_s)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=_env(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _late(timeout_s) from None
    if done.returncode == -signal.SIGALRM:  # its own clock was first
        raise _late(timeout_s)
    if done.returncode:
        raise OSError(f"cannot be resolved: {done.stderr.strip()[-200:]}")
    return done.stdout.split()


def _late(timeout_s: float) -> TimeoutError:
    return TimeoutError(f"was not resolved within {timeout_s:g} s")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _env() -> dict[str, str]:
    """The process reads what strangers' name servers answer, so it has no secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TORCHYARD_")}


def _main(name: str, timeout_s: str) -> None:
    signal.setitimer(signal.ITIMER_REAL, float(timeout_s))  # ends it where the controller was killed meanwhile
    try:
        addresses = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as error:
        sys.exit(str(error))
    sys.stdout.write("\n".join(str(address[0]) for *_, address in addresses))


if __name__ == "__main__":
    _main(*sys.argv[1:])
