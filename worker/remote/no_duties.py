"""What a worker that has joined leaves to the service: the duties of the cluster, and estimates."""

from collections.abc import Callable, Generator


class NoDuties:
    """A `worker.service.ClusterDuties` that does nothing."""

    def rescue_expired(self) -> None:
        pass

    def sweep(self) -> None:
        pass

    def database_was_away(self) -> None:
        pass

    def remove_unreferenced_blobs(self) -> None:
        pass

    def clean(self) -> Generator[None]:
        yield from ()


class NoForecasts:
    """A `worker.service.Forecasts` that makes none."""

    def due_in(self) -> float:
        return float("inf")

    def work(self, may_go_on: Callable[[], bool]) -> None:
        pass

    def notice(self) -> None:
        pass

    def forget(self) -> None:
        pass

    def leave(self) -> None:
        pass
