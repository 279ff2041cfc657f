"""The client whose methods block until their result is there."""

from pathlib import Path
from typing import Self

from torchyard.client.blocking import BlockingTransport, Driver, blocking, iterating
from torchyard.client.core.bundles import BundlesCore
from torchyard.client.core.client import ClientCore
from torchyard.client.core.notifications import NotificationsCore
from torchyard.client.core.schedules import SchedulesCore
from torchyard.client.core.sweeps import SweepsCore
from torchyard.client.discovery import Server, discover
from torchyard.client.handles import Job


class Bundles(Driver[BundlesCore]):
    """The operations of `BundlesCore`, which block until their result is there."""

    upload = blocking(BundlesCore.upload)
    named = blocking(BundlesCore.named)
    name = blocking(BundlesCore.name)
    list = iterating(BundlesCore.list)
    get = blocking(BundlesCore.get)
    delete = blocking(BundlesCore.delete)
    download = blocking(BundlesCore.download)


class Sweeps(Driver[SweepsCore]):
    """The operations of `SweepsCore`, which block until their result is there."""

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
    """The operations of `SchedulesCore`, which block until their result is there."""

    create = blocking(SchedulesCore.create)
    get = blocking(SchedulesCore.get)
    list = iterating(SchedulesCore.list)
    pause = blocking(SchedulesCore.pause)
    resume = blocking(SchedulesCore.resume)
    change = blocking(SchedulesCore.change)
    delete = blocking(SchedulesCore.delete)


class Notifications(Driver[NotificationsCore]):
    """The operations of `NotificationsCore`, which block until their result is there."""

    targets = iterating(NotificationsCore.targets)
    find = blocking(NotificationsCore.find)
    add = blocking(NotificationsCore.add)
    change = blocking(NotificationsCore.change)
    remove = blocking(NotificationsCore.remove)
    send_test = blocking(NotificationsCore.send_test)
    messages = iterating(NotificationsCore.messages)


class Client(Driver[ClientCore]):
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
        super().__init__(ClientCore(self.server, BlockingTransport(self.server), patience=patience))
        self.bundles = Bundles(self._core.bundles)
        self.sweeps = Sweeps(self._core.sweeps)
        self.schedules = Schedules(self._core.schedules)
        self.notifications = Notifications(self._core.notifications)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    close = blocking(ClientCore.close)
    run = blocking(ClientCore.run, Job)
    submit = blocking(ClientCore.submit, Job)
    submit_batch = blocking(ClientCore.submit_batch)
    validate = blocking(ClientCore.validate)
    forecast = blocking(ClientCore.forecast)
    exact_init_from = blocking(ClientCore.exact_init_from)
    get = blocking(ClientCore.get, Job)
    free_name = blocking(ClientCore.free_name)
    advice = blocking(ClientCore.advice)
    list = iterating(ClientCore.list)
    count = blocking(ClientCore.count)
    act = blocking(ClientCore.act)
    update = blocking(ClientCore.update)
    star = blocking(ClientCore.star)
    groups = blocking(ClientCore.groups)
    cancel = blocking(ClientCore.cancel)
    pause = blocking(ClientCore.pause)
    price_of_stop = blocking(ClientCore.price_of_stop)
    resume = blocking(ClientCore.resume)
    retry = blocking(ClientCore.retry, Job)
    delete = blocking(ClientCore.delete)
    queue = iterating(ClientCore.queue)
    events = iterating(ClientCore.events)
    metrics = blocking(ClientCore.metrics)
    curves = blocking(ClientCore.curves)
    make_log_curves = blocking(ClientCore.make_log_curves)
    attempts = iterating(ClientCore.attempts)
    logs = iterating(ClientCore.logs)
    search_logs = iterating(ClientCore.search_logs)
    lines_before = blocking(ClientCore.lines_before)
    stacks = blocking(ClientCore.stacks)
    checkpoints = iterating(ClientCore.checkpoints)
    checkpoint = blocking(ClientCore.checkpoint)
    download = blocking(ClientCore.download)
    artifacts = iterating(ClientCore.artifacts)
    kept_files = iterating(ClientCore.kept_files)
    keep = blocking(ClientCore.keep)
    download_artifact = blocking(ClientCore.download_artifact)
    media = iterating(ClientCore.media)
    download_picture = blocking(ClientCore.download_picture)
    models = iterating(ClientCore.models)
    model = blocking(ClientCore.model)
    model_versions = iterating(ClientCore.model_versions)
    model_version = blocking(ClientCore.model_version)
    add_model = blocking(ClientCore.add_model)
    share_model = blocking(ClientCore.share_model)
    remove_model = blocking(ClientCore.remove_model)
    download_model = blocking(ClientCore.download_model)
    trainers = blocking(ClientCore.trainers)
    workers = blocking(ClientCore.workers)
    worker_history = blocking(ClientCore.worker_history)
    usage = iterating(ClientCore.usage)
    disk_use = blocking(ClientCore.disk_use)
    drain = blocking(ClientCore.drain)
    price_of_drain = blocking(ClientCore.price_of_drain)
    undrain = blocking(ClientCore.undrain)
    ready = blocking(ClientCore.ready)
    wait = blocking(ClientCore.wait)
    wait_for_change = blocking(ClientCore.wait_for_change)
    stream = iterating(ClientCore.stream)
    follow = iterating(ClientCore.follow)
    follow_logs = iterating(ClientCore.follow_logs)
    me = blocking(ClientCore.me)
    login_code = blocking(ClientCore.login_code)
    users = iterating(ClientCore.users)
    add_user = blocking(ClientCore.add_user)
    change_user = blocking(ClientCore.change_user)
    tokens = iterating(ClientCore.tokens)
    make_token = blocking(ClientCore.make_token)
    revoke_token = blocking(ClientCore.revoke_token)
    sessions = iterating(ClientCore.sessions)
    end_session = blocking(ClientCore.end_session)
    quotas = iterating(ClientCore.quotas)
    quota = blocking(ClientCore.quota)
    set_quota = blocking(ClientCore.set_quota)
    clear_quota = blocking(ClientCore.clear_quota)
    secrets = iterating(ClientCore.secrets)
    set_secret = blocking(ClientCore.set_secret)
    delete_secret = blocking(ClientCore.delete_secret)
    rotate_secrets = blocking(ClientCore.rotate_secrets)
    saved_views = iterating(ClientCore.saved_views)
    save_view = blocking(ClientCore.save_view)
    delete_saved_view = blocking(ClientCore.delete_saved_view)
    audit = iterating(ClientCore.audit)
