"""The most that a service lets a job ask for."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from torchyard.contract.errors import FieldError, InvalidSpec
from torchyard.contract.wire.units import LONGEST_STOP_GRACE, format_duration

if TYPE_CHECKING:  # settings have maximums, and not every program that reads them knows specs
    from torchyard.contract.spec.dev import Dev
    from torchyard.contract.spec.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Maximums:
    """What the operator has set."""

    stop_grace: timedelta = LONGEST_STOP_GRACE
    idle_timeout: timedelta | None = None
    """None: GPUs may be idle for ever, unless the job itself says otherwise."""


def within(spec: "Spec", maximums: Maximums) -> "Spec":
    """Returns the spec with what it leaves to the service cut to the maximums. Raises InvalidSpec if it asks for more.

    A job that wants CPU slots gets no idle timeout.
    """
    if errors := tuple(_errors(spec, maximums)):
        raise InvalidSpec("the job spec is not valid", errors=errors)
    changes: dict[str, timedelta] = {}
    if spec.stop_grace > maximums.stop_grace:
        changes["stop_grace"] = maximums.stop_grace
    if spec.idle_timeout is None and maximums.idle_timeout is not None and spec.resources.device != "cpu":
        changes["idle_timeout"] = maximums.idle_timeout
    return spec.model_copy(update=changes) if changes else spec


def require_within(dev: "Dev", maximums: Maximums) -> None:
    """Raises InvalidSpec if a job that waits asks for more than a maximum."""
    if errors := tuple(_errors_of_idle_timeout(dev.idle_timeout, maximums)):
        raise InvalidSpec("the job spec is not valid", errors=errors)


def _errors(spec: "Spec", maximums: Maximums) -> Iterator[FieldError]:
    if spec.stop_grace > maximums.stop_grace and "stop_grace" in spec.model_fields_set:
        yield _above("stop_grace", maximums.stop_grace)
    if spec.idle_timeout is not None:
        yield from _errors_of_idle_timeout(spec.idle_timeout, maximums)


def _errors_of_idle_timeout(asked: timedelta, maximums: Maximums) -> Iterator[FieldError]:
    if maximums.idle_timeout is not None and asked > maximums.idle_timeout:
        yield _above("idle_timeout", maximums.idle_timeout)


def _above(field: str, longest: timedelta) -> FieldError:
    variable = f"TORCHYARD_MAX_{field.upper()}"
    return FieldError(field, f"must be at most {format_duration(longest)}, the maximum of this service ({variable})")
