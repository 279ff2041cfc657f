"""The views of what stops would cost, as a caller may see them."""

from collections import Counter
from collections.abc import Sequence

from store.attempts.facts import StopPrice
from store.team.callers import Caller, may_list, may_read
from torchyard.contract.queue.price import NOTHING_RUNS, Kind, at_stake, price_of_stop, price_of_stops, price_of_unread
from torchyard.contract.queue.views import PriceView, StopView

_MOST_SHOWN = 100
_SECOND_US = 1_000_000


def stop(price: StopPrice | None, caller: Caller, *, ends: bool = False) -> StopView:
    """Returns what stopping one job costs; None: it does not run. `ends`: it does not go on by itself."""
    if price is None:
        return StopView(jobs=[], total=0, device_seconds=0.0, message=NOTHING_RUNS)
    view = _price(price, caller, ends=ends)
    is_read = may_read(caller, price)
    message = price_of_stop(price.stake, price.saving, ends=ends) if is_read else view.message
    return StopView(jobs=[view], total=1, device_seconds=view.device_seconds, message=message)


def stops(prices: Sequence[StopPrice], caller: Caller, *, ends: bool = False, now: bool = False) -> StopView:
    """Returns what stopping all of these jobs costs, the highest price first. `now`: they are killed."""
    if len(prices) == 1:
        return stop(prices[0], caller, ends=ends)
    by_kind: Counter[Kind] = Counter()
    for one in prices:
        by_kind[one.stake.kind] += one.stake.device_us
    return StopView(
        jobs=[_price(one, caller, ends=ends) for one in prices[:_MOST_SHOWN]],
        total=len(prices),
        device_seconds=by_kind.total() / _SECOND_US,
        message=price_of_stops(len(prices), by_kind, now=now),
    )


def _price(price: StopPrice, caller: Caller, *, ends: bool) -> PriceView:
    stake, is_shown, is_read = price.stake, may_list(caller, price), may_read(caller, price)
    return PriceView(
        job_id=price.job_id if is_shown else None,
        name=price.name if is_shown else None,
        owner=price.owner,
        kind=stake.kind,
        devices=price.devices,
        steps=stake.steps if is_read else None,
        device_seconds=stake.device_us / _SECOND_US,
        resumes_at_step=stake.resumes_at if is_read else None,
        message=at_stake(stake, ends=ends) if is_read else price_of_unread(stake),
    )
