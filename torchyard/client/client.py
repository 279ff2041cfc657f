"""The client whose methods block until they have a result."""

from pathlib import Path
from typing import Self

from torchyard.client.blocking import BlockingTransport, Driver, blocking, iterating
from torchyard.client.core.bundles import BundlesCore
from torchyard.client.core.client import ClientCore
from torchyard.client.core.job import JobCore
from torchyard.client.core.models import ModelsCore
from torchyard.client.core.notifications import NotificationsCore
from torchyard.client.core.reaches import ReachesCore
from torchyard.client.core.schedules import SchedulesCore
from torchyard.client.core.sweeps import SweepsCore
from torchyard.client.core.team import QuotasCore, SavedViewsCore, SecretsCore, SessionsCore, TokensCore, UsersCore
from torchyard.client.core.workers import WorkersCore
from torchyard.client.discovery import Server, discover
from torchyard.client.handles import Job


class Jobs(Driver[JobCore]):
    """`client.jobs`: jobs and their files."""

    submit_batch = blocking(JobCore.submit_batch)
    validate = blocking(JobCore.validate)
    forecast = blocking(JobCore.forecast)
    list = iterating(JobCore.list)
    count = blocking(JobCore.count)
    groups = blocking(JobCore.groups)
    act = blocking(JobCore.act)
    update = blocking(JobCore.update)
    star = blocking(JobCore.star)
    cancel = blocking(JobCore.cancel)
    pause = blocking(JobCore.pause)
    price_of_stop = blocking(JobCore.price_of_stop)
    resume = blocking(JobCore.resume)
    retry = blocking(JobCore.retry, Job)
    delete = blocking(JobCore.delete)
    advice = blocking(JobCore.advice)
    attempts = iterating(JobCore.attempts)
    events = iterating(JobCore.events)
    metrics = blocking(JobCore.metrics)
    curves = blocking(JobCore.curves)
    make_log_curves = blocking(JobCore.make_log_curves)
    logs = iterating(JobCore.logs)
    search_logs = iterating(JobCore.search_logs)
    stacks = blocking(JobCore.stacks)
    stream = iterating(JobCore.stream)
    follow = iterating(JobCore.follow)
    follow_logs = iterating(JobCore.follow_logs)
    checkpoints = iterating(JobCore.checkpoints)
    checkpoint = blocking(JobCore.checkpoint)
    download = blocking(JobCore.download)
    artifacts = iterating(JobCore.artifacts)
    kept_files = iterating(JobCore.kept_files)
    keep = blocking(JobCore.keep)
    download_artifact = blocking(JobCore.download_artifact)
    media = iterating(JobCore.media)
    download_picture = blocking(JobCore.download_picture)


class Sweeps(Driver[SweepsCore]):
    """`client.sweeps`: sweeps."""

    create = blocking(SweepsCore.create)
    validate = blocking(SweepsCore.validate)
    get = blocking(SweepsCore.get)
    list = iterating(SweepsCore.list)
    trials = iterating(SweepsCore.trials)
    pause = blocking(SweepsCore.pause)
    resume = blocking(SweepsCore.resume)
    cancel = blocking(SweepsCore.cancel)
    extend = blocking(SweepsCore.extend)
    promote = blocking(SweepsCore.promote)
    delete = blocking(SweepsCore.delete)
    wait = blocking(SweepsCore.wait)


class Schedules(Driver[SchedulesCore]):
    """`client.schedules`: schedules."""

    create = blocking(SchedulesCore.create)
    get = blocking(SchedulesCore.get)
    list = iterating(SchedulesCore.list)
    pause = blocking(SchedulesCore.pause)
    resume = blocking(SchedulesCore.resume)
    change = blocking(SchedulesCore.change)
    delete = blocking(SchedulesCore.delete)


class Models(Driver[ModelsCore]):
    """`client.models`: models."""

    list = iterating(ModelsCore.list)
    get = blocking(ModelsCore.get)
    versions = iterating(ModelsCore.versions)
    version = blocking(ModelsCore.version)
    add = blocking(ModelsCore.add)
    share = blocking(ModelsCore.share)
    remove = blocking(ModelsCore.remove)
    download = blocking(ModelsCore.download)


class Bundles(Driver[BundlesCore]):
    """`client.bundles`: bundles: uploaded code and data."""

    upload = blocking(BundlesCore.upload)
    named = blocking(BundlesCore.named)
    name = blocking(BundlesCore.name)
    list = iterating(BundlesCore.list)
    get = blocking(BundlesCore.get)
    delete = blocking(BundlesCore.delete)
    download = blocking(BundlesCore.download)


class Reaches(Driver[ReachesCore]):
    """`client.reaches`: reaches: shells, programs and ports inside running jobs."""

    open = blocking(ReachesCore.open)
    meet_again = blocking(ReachesCore.meet_again)
    end = blocking(ReachesCore.end)


class Workers(Driver[WorkersCore]):
    """`client.workers`: workers."""

    list = blocking(WorkersCore.list)
    history = blocking(WorkersCore.history)
    drain = blocking(WorkersCore.drain)
    price_of_drain = blocking(WorkersCore.price_of_drain)
    undrain = blocking(WorkersCore.undrain)
    set_users = blocking(WorkersCore.set_users)
    code = blocking(WorkersCore.code)
    remove = blocking(WorkersCore.remove)


class Users(Driver[UsersCore]):
    """`client.users`: users."""

    list = iterating(UsersCore.list)
    add = blocking(UsersCore.add)
    change = blocking(UsersCore.change)
    code = blocking(UsersCore.code)


class Tokens(Driver[TokensCore]):
    """`client.tokens`: tokens."""

    list = iterating(TokensCore.list)
    make = blocking(TokensCore.make)
    revoke = blocking(TokensCore.revoke)


class Sessions(Driver[SessionsCore]):
    """`client.sessions`: your browser sessions."""

    list = iterating(SessionsCore.list)
    end = blocking(SessionsCore.end)


class Quotas(Driver[QuotasCore]):
    """`client.quotas`: quotas."""

    list = iterating(QuotasCore.list)
    get = blocking(QuotasCore.get)
    set = blocking(QuotasCore.set)
    clear = blocking(QuotasCore.clear)


class Secrets(Driver[SecretsCore]):
    """`client.secrets`: your secrets."""

    list = iterating(SecretsCore.list)
    set = blocking(SecretsCore.set)
    delete = blocking(SecretsCore.delete)
    rotate = blocking(SecretsCore.rotate)


class SavedViews(Driver[SavedViewsCore]):
    """`client.saved_views`: saved views of the page."""

    list = iterating(SavedViewsCore.list)
    save = blocking(SavedViewsCore.save)
    delete = blocking(SavedViewsCore.delete)


class Notifications(Driver[NotificationsCore]):
    """`client.notifications`: notification channels and their messages."""

    targets = iterating(NotificationsCore.targets)
    find = blocking(NotificationsCore.find)
    add = blocking(NotificationsCore.add)
    change = blocking(NotificationsCore.change)
    remove = blocking(NotificationsCore.remove)
    send_test = blocking(NotificationsCore.send_test)
    messages = iterating(NotificationsCore.messages)


class Client(Driver[ClientCore]):
    """A blocking client of one Torchyard service. Use it in a `with` statement, or call `close`.

    Without arguments it finds the service by TORCHYARD_URL and TORCHYARD_TOKEN, else by your login (`torchyard login`),
    else by the service that runs in `data_dir`. `jobs`, `sweeps`, `models` and the other attributes have the rest of
    the methods.

    If the service does not answer, requests, streams and downloads are repeated for `patience` seconds.

    Args:
        url: The address of the service.
        token: A token of the service. It is sent to this service only.
        data_dir: The data directory of a service on this machine.
        certificate: The only certificate to accept, as PEM; None: that of the login, else any from a trusted authority.
        patience: Seconds to repeat a request to a service that answered before.

    Raises:
        ServerUnreachable: No service is known, or it does not answer. Every method may raise it.
        NotAuthorized: No token is known, or it is not valid.
        ConfigError: The address or a login is not valid.
        TorchyardError: Every other error of the service: a class of `torchyard.contract.errors` for each `code`.

    Example:
        >>> with Client() as client:
        ...     client.me().name
        'admin'
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        data_dir: str | Path = ".torchyard",
        certificate: str | None = None,
        patience: float = 30.0,
    ) -> None:
        self.server: Server = discover(url, token, data_dir=Path(data_dir), certificate=certificate)
        super().__init__(ClientCore(self.server, BlockingTransport(self.server), patience=patience))
        self.jobs = Jobs(self._core.jobs)
        self.sweeps = Sweeps(self._core.sweeps)
        self.schedules = Schedules(self._core.schedules)
        self.models = Models(self._core.models)
        self.bundles = Bundles(self._core.bundles)
        self.reaches = Reaches(self._core.reaches)
        self.workers = Workers(self._core.workers)
        self.users = Users(self._core.users)
        self.tokens = Tokens(self._core.tokens)
        self.sessions = Sessions(self._core.sessions)
        self.quotas = Quotas(self._core.quotas)
        self.secrets = Secrets(self._core.secrets)
        self.saved_views = SavedViews(self._core.saved_views)
        self.notifications = Notifications(self._core.notifications)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    close = blocking(ClientCore.close)
    submit = blocking(ClientCore.submit, Job)
    get = blocking(ClientCore.get, Job)
    run = blocking(ClientCore.run, Job)
    wait = blocking(ClientCore.wait)
    ready = blocking(ClientCore.ready)
    me = blocking(ClientCore.me)
    login_code = blocking(ClientCore.login_code)
    trainers = blocking(ClientCore.trainers)
    queue = iterating(ClientCore.queue)
    usage = iterating(ClientCore.usage)
    disk_use = blocking(ClientCore.disk_use)
    audit = iterating(ClientCore.audit)
