"""The client whose methods block until their result is there."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import wraps
import inspect
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, get_args

from torchyard.client.blocking import BlockingTransport, iterate, run
from torchyard.client.bundles import Bundles
from torchyard.client.core import ClientCore
from torchyard.client.discovery import Server, discover
from torchyard.client.handles import Job
from torchyard.contract.views import JobView

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    operation: Callable[Concatenate[ClientCore, P], Coroutine[Any, Any, T]],
) -> "Callable[Concatenate[Client, P], T]":
    """Returns the method that runs the operation and returns its result."""

    @wraps(operation)
    def method(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(operation(client._core, *args, **kwargs))  # pyright: ignore[reportPrivateUsage] - its method

    return method


def _held(
    operation: Callable[Concatenate[ClientCore, P], Coroutine[Any, Any, JobView]],
) -> "Callable[Concatenate[Client, P], Job]":
    """Returns the method that runs the operation and returns its job as an object."""

    @wraps(operation)
    def method(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Job:
        return Job(client, run(operation(client._core, *args, **kwargs)))  # pyright: ignore[reportPrivateUsage] - its method

    vars(method)["__signature__"] = inspect.signature(operation).replace(return_annotation=Job)
    return method


def _iterating(
    operation: Callable[Concatenate[ClientCore, P], AsyncGenerator[T]],
) -> "Callable[Concatenate[Client, P], Generator[T]]":
    """Returns the method that yields the operation's items, which are fetched as the caller asks for them."""

    @wraps(operation)
    def method(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Generator[T]:
        return iterate(operation(client._core, *args, **kwargs))  # pyright: ignore[reportPrivateUsage] - its method

    signature = inspect.signature(operation)
    item = get_args(signature.return_annotation)[0]
    vars(method)["__signature__"] = signature.replace(return_annotation=Generator[item])
    return method


class Client:
    """Talks to one Torchyard server. Every method raises TorchyardError: the class in `torchyard.contract.errors` for
    the `code` of the answer, or ServerUnreachable if there is no answer.

    Without arguments it finds the server through TORCHYARD_URL and TORCHYARD_TOKEN, else the user's login, else the
    `server.json` in `data_dir` that `torchyard up` keeps. If a server that answered before does not answer, calls,
    streams and downloads are repeated for `patience` seconds.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        data_dir: str | Path = ".torchyard",
        patience: float = 30.0,
    ) -> None:
        self.server: Server = discover(url, token, data_dir=Path(data_dir))
        self._core = ClientCore(self.server, BlockingTransport(self.server), patience=patience)
        self.bundles = Bundles(self._core.bundles)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    close = _blocking(ClientCore.close)
    run = _held(ClientCore.run)
    submit = _blocking(ClientCore.submit)
    validate = _blocking(ClientCore.validate)
    get = _blocking(ClientCore.get)
    find = _blocking(ClientCore.find)
    advice = _blocking(ClientCore.advice)
    list = _iterating(ClientCore.list)
    count = _blocking(ClientCore.count)
    act = _blocking(ClientCore.act)
    update = _blocking(ClientCore.update)
    cancel = _blocking(ClientCore.cancel)
    pause = _blocking(ClientCore.pause)
    resume = _blocking(ClientCore.resume)
    retry = _blocking(ClientCore.retry)
    delete = _blocking(ClientCore.delete)
    queue = _iterating(ClientCore.queue)
    events = _iterating(ClientCore.events)
    metrics = _blocking(ClientCore.metrics)
    curves = _blocking(ClientCore.curves)
    attempts = _iterating(ClientCore.attempts)
    logs = _iterating(ClientCore.logs)
    search_logs = _iterating(ClientCore.search_logs)
    lines_before = _blocking(ClientCore.lines_before)
    stacks = _blocking(ClientCore.stacks)
    checkpoints = _iterating(ClientCore.checkpoints)
    checkpoint = _blocking(ClientCore.checkpoint)
    download = _blocking(ClientCore.download)
    artifacts = _iterating(ClientCore.artifacts)
    download_artifact = _blocking(ClientCore.download_artifact)
    trainers = _blocking(ClientCore.trainers)
    workers = _blocking(ClientCore.workers)
    worker_history = _blocking(ClientCore.worker_history)
    drain = _blocking(ClientCore.drain)
    undrain = _blocking(ClientCore.undrain)
    ready = _blocking(ClientCore.ready)
    wait = _blocking(ClientCore.wait)
    wait_for_change = _blocking(ClientCore.wait_for_change)
    stream = _iterating(ClientCore.stream)
    follow = _iterating(ClientCore.follow)
    follow_logs = _iterating(ClientCore.follow_logs)
    me = _blocking(ClientCore.me)
    login_code = _blocking(ClientCore.login_code)
    users = _iterating(ClientCore.users)
    add_user = _blocking(ClientCore.add_user)
    change_user = _blocking(ClientCore.change_user)
    tokens = _iterating(ClientCore.tokens)
    make_token = _blocking(ClientCore.make_token)
    revoke_token = _blocking(ClientCore.revoke_token)
    quotas = _iterating(ClientCore.quotas)
    quota = _blocking(ClientCore.quota)
    set_quota = _blocking(ClientCore.set_quota)
    clear_quota = _blocking(ClientCore.clear_quota)
    secrets = _iterating(ClientCore.secrets)
    set_secret = _blocking(ClientCore.set_secret)
    delete_secret = _blocking(ClientCore.delete_secret)
    rotate_secrets = _blocking(ClientCore.rotate_secrets)
    audit = _iterating(ClientCore.audit)
