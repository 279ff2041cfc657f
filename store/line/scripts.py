"""The scripts that Redis runs. KEYS[1] is what the keys of the line begin with.

Of these there are, where BASE is KEYS[1]:

- `BASE jobs`: a hash of the entries by job id, `changed|submitted|group|bucket`;
- `BASE bucket:NAME` and `BASE group:NAME`: sorted sets of ids by the time of submission;
- `BASE buckets` and `BASE groups`: sorted sets of the names of those that have members;
- `BASE stamp`: is there while all of this may be read. It expires unless a worker compares it with the rows;
- `BASE rebuild`: is there while a worker makes all of this anew.

Numbers are written by `%.0f`, because Lua's own form of a number has 14 digits, and a time in microseconds has 16.
"""

from collections.abc import Sequence
import hashlib
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError


class Script:
    """A script, which Redis is sent as a digest, and as a whole if it does not know it."""

    def __init__(self, *parts: str) -> None:
        self.text = "\n".join((_NAMES, *parts))
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def run(self, redis: Redis, base: str, arguments: Sequence[str | int] = ()) -> Any:
        """Raises RedisError."""
        try:
            return redis.evalsha(self.digest, 1, base, *arguments)
        except NoScriptError:
            return redis.eval(self.text, 1, base, *arguments)


_NAMES = """
local base = KEYS[1]
local STAMP, REBUILD, JOBS = base .. 'stamp', base .. 'rebuild', base .. 'jobs'

local function fields(entry)
  return string.match(entry, '^(%d+)|(%d+)|([^|]*)|(.*)$')
end
"""

_MOVES = """
local function join(kind, name, submitted, id)
  local key = base .. kind .. ':' .. name
  if redis.call('ZADD', base .. kind .. 's', 0, name) == 1 then redis.call('UNLINK', key) end
  redis.call('ZADD', key, submitted, id)
end

local function leave(kind, name, id)
  local key = base .. kind .. ':' .. name
  redis.call('ZREM', key, id)
  if redis.call('ZCARD', key) == 0 then redis.call('ZREM', base .. kind .. 's', name) end
end

local function move(id, old, new)
  local _, _, group, bucket = fields(old)
  if bucket then
    leave('bucket', bucket, id)
    if group ~= '' then leave('group', group, id) end
  end
  if new == '' then redis.call('HDEL', JOBS, id) return end
  local _, submitted, group, bucket = fields(new)
  join('bucket', bucket, submitted, id)
  if group ~= '' then join('group', group, submitted, id) end
  redis.call('HSET', JOBS, id, new)
end
"""

_ORDER = """
local function text(number) return string.format('%.0f', number) end

local function before(key, score, id)
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. text(score))
  local high = redis.call('ZCOUNT', key, '-inf', text(score))
  while low < high do
    local middle = math.floor((low + high) / 2)
    if redis.call('ZRANGE', key, middle, middle)[1] < id then low = middle + 1 else high = middle end
  end
  return low
end

local function behind(key, score, id)
  local rank = before(key, score, id)
  if redis.call('ZRANGE', key, rank, rank)[1] == id then rank = rank + 1 end
  return rank
end
"""

_READABLE = "if redis.call('EXISTS', STAMP) == 0 then return false end"

CHANGE = Script(
    _MOVES,
    """
-- Of each job its id, its entry ('' without one), and when that applies: '' always, '<T' unless Redis has an entry that
-- changed after T, '=ENTRY' if Redis has just that one.
for i = 1, #ARGV, 3 do
  local id, new, rule = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local old, kind = redis.call('HGET', JOBS, id) or '', string.sub(rule, 1, 1)
  local applies = true
  if kind == '=' then applies = old == string.sub(rule, 2) end
  if kind == '<' then applies = (tonumber((fields(old))) or 0) <= tonumber(string.sub(rule, 2)) end
  if applies then move(id, old, new) end
end
""",
)

HEADS = Script(
    _READABLE,
    """
local found = {}
for _, name in ipairs(redis.call('ZRANGE', base .. 'groups', 0, -1)) do
  local first = redis.call('ZRANGE', base .. 'group:' .. name, 0, 0, 'WITHSCORES')
  if first[1] then
    found[#found + 1] = name
    found[#found + 1] = first[1]
    found[#found + 1] = first[2]
  end
end
return found
""",
)

SUCCESSORS = Script(
    _ORDER,
    _READABLE,
    """
local key = base .. 'group:' .. ARGV[1]
local first = behind(key, tonumber(ARGV[2]), ARGV[3])
return redis.call('ZRANGE', key, first, first + ARGV[4] - 1, 'WITHSCORES')
""",
)

BUCKETS = Script(
    _READABLE,
    """
local found = {}
for _, name in ipairs(redis.call('ZRANGE', base .. 'buckets', 0, -1)) do
  found[#found + 1] = name
  found[#found + 1] = redis.call('ZCARD', base .. 'bucket:' .. name)
end
return found
""",
)

BEFORE = Script(
    _ORDER,
    _READABLE,
    """
-- The number of buckets, of each its credit and its name, then the key and the id of each job.
local last = 1 + 2 * ARGV[1]
local found = {}
for mark = last + 1, #ARGV, 2 do
  local key, id, sum = tonumber(ARGV[mark]), ARGV[mark + 1], 0
  for i = 2, last, 2 do sum = sum + before(base .. 'bucket:' .. ARGV[i + 1], key + tonumber(ARGV[i]), id) end
  found[#found + 1] = sum
end
return found
""",
)

PAGE = Script(
    _ORDER,
    _READABLE,
    """
-- How many, the key and the id behind which the first class goes on ('' from its start), then of each bucket its class,
-- its credit and its name, class by class. The next job of all buckets of a class is the root of a heap.
local limit, mark, found = tonumber(ARGV[1]), tonumber(ARGV[2]), {}
local heap = {}

local function load(stream, count)
  stream.ids = redis.call('ZRANGE', stream.set, stream.rank, stream.rank + count - 1, 'WITHSCORES')
  stream.at, stream.rank = 1, stream.rank + count
end

local function ready(stream)
  if stream.at > #stream.ids then load(stream, 16) end
  stream.id = stream.ids[stream.at]
  if stream.id then stream.key = stream.ids[stream.at + 1] - stream.credit end
  return stream.id
end

local function less(one, two)
  if one.key ~= two.key then return one.key < two.key end
  return one.id < two.id
end

local function up(i)
  while i > 1 and less(heap[i], heap[math.floor(i / 2)]) do
    local parent = math.floor(i / 2)
    heap[i], heap[parent] = heap[parent], heap[i]
    i = parent
  end
end

local function down(i)
  while true do
    local least = i
    for child = 2 * i, 2 * i + 1 do
      if heap[child] and less(heap[child], heap[least]) then least = child end
    end
    if least == i then return end
    heap[i], heap[least] = heap[least], heap[i]
    i = least
  end
end

local i = 4
while i <= #ARGV and #found < 3 * limit do
  local class = ARGV[i]
  heap = {}
  while ARGV[i] == class do
    local credit, name = tonumber(ARGV[i + 1]), ARGV[i + 2]
    local stream = {credit = credit, name = name, set = base .. 'bucket:' .. name, rank = 0}
    if mark then stream.rank = behind(stream.set, mark + credit, ARGV[3]) end
    load(stream, 1)
    if ready(stream) then
      heap[#heap + 1] = stream
      up(#heap)
    end
    i = i + 3
  end
  mark = nil
  while heap[1] and #found < 3 * limit do
    local stream = heap[1]
    for _, value in ipairs({stream.name, stream.id, stream.ids[stream.at + 1]}) do found[#found + 1] = value end
    stream.at = stream.at + 2
    if not ready(stream) then heap[1] = heap[#heap] heap[#heap] = nil end
    if heap[1] then down(1) end
  end
end
return found
""",
)

STATE = Script("""
-- The stamp, and whether the sets have as many members as there are entries. Fails if a key is of another type.
local members, waiting = 0, 0
for _, name in ipairs(redis.call('ZRANGE', base .. 'buckets', 0, -1)) do
  members = members + redis.call('ZCARD', base .. 'bucket:' .. name)
end
for _, name in ipairs(redis.call('ZRANGE', base .. 'groups', 0, -1)) do
  waiting = waiting + redis.call('ZCARD', base .. 'group:' .. name)
end
return {redis.call('GET', STAMP) or '', (redis.call('HLEN', JOBS) == members and waiting <= members) and 1 or 0}
""")

LOOK = Script("""
-- The entry of each job, '' without one, and with a '!' before it if its sets have the job otherwise.
local function stands(kind, name, submitted, id)
  local score = redis.call('ZSCORE', base .. kind .. ':' .. name, id)
  return score and tonumber(score) == tonumber(submitted)
end

local found = {}
for i, id in ipairs(ARGV) do
  local entry = redis.call('HGET', JOBS, id) or ''
  local _, submitted, group, bucket = fields(entry)
  local sound = bucket and stands('bucket', bucket, submitted, id)
  if sound and group ~= '' then sound = stands('group', group, submitted, id) end
  found[i] = (entry == '' or sound) and entry or '!' .. entry
end
return found
""")

BEGIN = Script("""
-- The worker's token, and for how many milliseconds nobody else rebuilds. Removes all that is there.
if redis.call('PTTL', REBUILD) == -1 then redis.call('UNLINK', REBUILD) end
if not redis.call('SET', REBUILD, ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
redis.call('UNLINK', STAMP, JOBS)
for _, kind in ipairs({'bucket', 'group'}) do
  local names = redis.pcall('ZRANGE', base .. kind .. 's', 0, -1)
  if not names.err then
    for _, name in ipairs(names) do redis.call('UNLINK', base .. kind .. ':' .. name) end
  end
  redis.call('UNLINK', base .. kind .. 's')
end
return 1
""")

GO_ON = Script("""
-- The worker's token, and for how many milliseconds more nobody else rebuilds.
if redis.call('GET', REBUILD) ~= ARGV[1] then return 0 end
redis.call('SET', REBUILD, ARGV[1], 'PX', ARGV[2])
return 1
""")

FINISH = Script("""
-- The worker's token, the stamp, and after how many milliseconds it expires.
if redis.call('GET', REBUILD) ~= ARGV[1] then return 0 end
redis.call('SET', STAMP, ARGV[2], 'PX', ARGV[3])
redis.call('UNLINK', REBUILD)
return 1
""")
