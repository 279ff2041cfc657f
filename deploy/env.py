"""`make env`: writes `.env`, from which Docker Compose reads every secret. Needs only Python."""

import os
from pathlib import Path
import secrets
import sys

_TEXT = """\
# Made by `make env` for docker-compose.yml. Whoever reads it can run code on this host.

# What users send: `Authorization: Bearer …`
TORCHYARD_TOKEN={token}

# The key of users' secrets. No backup has it: keep it with the volumes.
TORCHYARD_SECRET_KEY={key}

# The servers' passwords, which go into URLs: letters and digits only.
# PostgreSQL keeps the one with which its volume was made.
POSTGRES_PASSWORD={postgres}
REDIS_PASSWORD={redis}

# The one folder of this host whose data and code jobs may name, as file:///srv/torchyard/… It is mounted read-only at
# the same path; uid 10001, as which jobs run, must be able to read it.
TORCHYARD_ALLOW_PATHS=/srv/torchyard

# The port on 127.0.0.1; the names, separated by commas, by which a proxy is reached that leads to it; the proxy's
# address as the API sees it; who may read a job whose spec does not say it; how many CPU slots the worker of the `cpu`
# profile offers; and how much memory a worker and its jobs may use together.
#TORCHYARD_PORT=8000
#TORCHYARD_ALLOWED_HOSTS=torchyard.example.com
#TORCHYARD_TRUSTED_PROXIES=172.18.0.1
#TORCHYARD_VISIBILITY=team
#TORCHYARD_CPU_SLOTS=2
#WORKER_MEMORY=16g
"""


def main() -> None:
    path = Path(".env")
    names = ("token", "key", "postgres", "redis")
    text = _TEXT.format(**{name: secrets.token_hex(32) for name in names})
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        sys.exit(f"error: {path} exists and is not changed: the volumes use its passwords")
    except OSError as error:
        sys.exit(f"error: {path} cannot be written: {error.strerror}")
    sys.stdout.write(f"{path} holds a new token and passwords. Next: docker compose --profile cpu up --detach --wait\n")


if __name__ == "__main__":
    main()
