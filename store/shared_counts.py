"""What the API's processes count together, in Redis: the requests of each user, and what each process holds open.

Of these keys there are, where BASE is KEYS[1]:

- `BASE rate:USER`: the tokens that are left in the user's bucket, and when that was counted;
- `BASE users`: a sorted set of the users who have drawn tokens of late, by when they did;
- `BASE held:USER`: how many things each process holds open for the user, as JSON by process;
- `BASE process:ID`: is there while the process renews it. What a process holds ends with it.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
import json
import secrets
from typing import Any

from store.redis import client as redis_client
from store.redis import names as redis_names
from store.redis.client import Pause, QueueUnavailable, connect
from store.redis.script import Script

HELD_FOR_S = 10.0
"""How long after the last renewal a process counts as dead."""
ACTIVE_S = 10.0
"""Who has drawn tokens within so many seconds shares the rate."""
LEAST_SHARE = 0.1
"""The part of the rate that each user has, however many share it."""


@dataclass(frozen=True)
class Bucket:
    """The rate of one user who is alone, and how many may come at once."""

    per_second: float
    burst: float


@dataclass(frozen=True)
class Drawn:
    """What a user got. Without `tokens`, as many as were asked for are there in `wait_s` seconds."""

    tokens: float
    wait_s: float


class SharedCounts:
    """The counts of one process, which all others see. Threads may share it. All methods raise QueueUnavailable."""

    def __init__(self, url: str, *, service: Callable[[], str | None]) -> None:
        """Does not connect yet. `service` returns the service's id if it is known. Raises ConfigError."""
        self._redis = connect(url, timeout_s=redis_client.QUICK_S)
        self._service = service
        self._pause = Pause()
        self._process = secrets.token_hex(8)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="counts")
        """Where an event loop calls the methods: one after the other, so that Redis gets everything in order."""

    def draw(self, user: str, bucket: Bucket, *, least: float, most: float) -> Drawn:
        """Takes at least `least` tokens, at most `most`, or none.

        More than a whole bucket are given by a full one, which then owes them.
        """
        arguments = (user, least, most, bucket.per_second, bucket.burst, ACTIVE_S, LEAST_SHARE)
        tokens, wait_s = self._run(_DRAW, arguments)
        return Drawn(float(tokens), float(wait_s))

    def hold(self, user: str, *, held: int, most: int) -> bool:
        """Tells that this process holds `held` things open for the user, unless all have more than `most` then."""
        return bool(self._run(_HOLD, (self._process, _ms(HELD_FOR_S), user, held, most)))

    def tell(self, held: Mapping[str, int]) -> None:
        """Stores how many things this process holds open for each of these users, and renews its lease."""
        self._run(_TELL, (self._process, _ms(HELD_FOR_S), json.dumps(list(held.items()))))

    def leave(self) -> None:
        """Tells that this process holds nothing any more."""
        self._run(_LEAVE, (self._process,))

    def close(self) -> None:
        """Waits for the calls of its thread, and closes idle connections."""
        self.thread.shutdown()
        self._redis.connection_pool.disconnect(inuse_connections=False)

    def _run(self, script: Script, arguments: tuple[str | int | float, ...]) -> Any:
        service = self._service()
        if service is None:
            raise QueueUnavailable("the service's id is not known yet")
        with self._pause.translated():
            return script.run(self._redis, redis_names.counts(service), arguments)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


_DRAW = Script("""
-- The user, the least and the most tokens, the rate, the burst, how long who draws is active, and the least share.
local base, user = KEYS[1], ARGV[1]
local least, most, rate, burst = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000

local users, key = base .. 'users', base .. 'rate:' .. user
for _, gone in ipairs(redis.call('ZRANGE', users, '-inf', now - ARGV[6], 'BYSCORE', 'LIMIT', 0, 100)) do
  redis.call('ZREM', users, gone)
end
redis.call('ZADD', users, now, user)
local share = rate * math.max(1 / redis.call('ZCARD', users), tonumber(ARGV[7]))

local kept = redis.call('GET', key)
local tokens, at = string.match(kept or '', '^(%S+) (%S+)$')
tokens, at = tonumber(tokens) or burst, tonumber(at) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * share)
local given, needed = 0, math.min(least, burst)
if tokens >= needed then given = math.max(least, math.min(most, tokens)) end
tokens = tokens - given
-- It is full again when it expires, whatever the share will be.
local full_ms = math.min(math.ceil((burst - tokens) / (rate * ARGV[7]) * 1000) + 1, 30 * 86400 * 1000)
redis.call('SET', key, string.format('%.6f %.6f', tokens, now), 'PX', string.format('%.0f', full_ms))
return {string.format('%.6f', given), string.format('%.6f', given > 0 and 0 or (needed - tokens) / share)}
""")

_LEAVE = Script("return redis.call('UNLINK', KEYS[1] .. 'process:' .. ARGV[1])")

_HELD = """
local base, process, lease = KEYS[1], ARGV[1], ARGV[2]

local function others(user)
  local key, sum, left = base .. 'held:' .. user, 0, {}
  for other, count in pairs(cjson.decode(redis.call('GET', key) or '{}')) do
    if other ~= process and redis.call('EXISTS', base .. 'process:' .. other) == 1 then
      left[other], sum = count, sum + count
    end
  end
  return key, sum, left
end

local function put(key, left, held)
  if held > 0 then left[process] = held end
  if next(left) then redis.call('SET', key, cjson.encode(left), 'PX', lease) else redis.call('UNLINK', key) end
end

redis.call('SET', base .. 'process:' .. process, '', 'PX', lease)
"""

_HOLD = Script(
    _HELD,
    """
local key, sum, left = others(ARGV[3])
local held = tonumber(ARGV[4])
if sum + held > tonumber(ARGV[5]) then return 0 end
put(key, left, held)
return 1
""",
)

_TELL = Script(
    _HELD,
    """
for _, change in ipairs(cjson.decode(ARGV[3])) do
  local key, _, left = others(change[1])
  put(key, left, change[2])
end
return 1
""",
)
