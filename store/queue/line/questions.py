"""The scripts that answer what is asked of the line. Their keys are in `store.queue.line.scripts`.

They answer nothing while the line may not be read. Numbers are written by `%.0f`, and answers have scores as Redis
writes them, because Lua's own form of a number has 14 digits, and a time in microseconds has 16.
"""

from store.queue.line.scripts import CHANGES, Script

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

HEADS = Script(
    _READABLE,
    """
local found = {}
for _, name in ipairs(redis.call('ZRANGE', base .. 'groups', 0, -1)) do
  local first = redis.call('ZRANGE', base .. 'group:' .. name, 0, 0, 'WITHSCORES')
  if name ~= '' and first[1] then
    found[#found + 1] = name
    found[#found + 1] = first[1]
    found[#found + 1] = first[2]
  end
end
return cjson.encode(found)
""",
)

SUCCESSORS = Script(
    _ORDER,
    _READABLE,
    """
local key = base .. 'group:' .. ARGV[1]
local first = behind(key, tonumber(ARGV[2]), ARGV[3])
return cjson.encode(redis.call('ZRANGE', key, first, first + ARGV[4] - 1, 'WITHSCORES'))
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
return cjson.encode(found)
""",
)

PLACES = (
    _ORDER
    + """
-- The credits by kind and owner, that of all others, the kind that `auto` is, and whose jobs are last, by kind and
-- owner; and the name of its bucket, the time of submission and the id of each job.
local function positions(credits, marks)
  local buckets, found = {}, {}

  local function bucket(name)
    local priority, request, owner = string.match(name, '^(-?%d+):([^:]*):(.*)$')
    local key = (request == 'auto' and credits.auto or request) .. ':' .. owner
    local set = base .. 'bucket:' .. name
    local credit = credits.of[key] or credits.default
    return {set = set, priority = tonumber(priority), last = credits.last[key], credit = credit}
  end

  local function sooner(one, two)
    if one.last ~= two.last then return two.last end
    return one.priority > two.priority
  end

  for i, name in ipairs(redis.call('ZRANGE', base .. 'buckets', 0, -1)) do
    buckets[i] = bucket(name)
    buckets[i].count = redis.call('ZCARD', buckets[i].set)
  end
  for i, mark in ipairs(marks) do
    local own = bucket(mark[1])
    found[i] = 1
    for _, other in ipairs(buckets) do
      if sooner(other, own) then
        found[i] = found[i] + other.count
      elseif not sooner(own, other) then
        found[i] = found[i] + before(other.set, mark[2] - own.credit + other.credit, mark[3])
      end
    end
  end
  return found
end
"""
)
"""The function `positions` of a script."""

POSITIONS = Script(PLACES, _READABLE, "return cjson.encode(positions(cjson.decode(ARGV[1]), cjson.decode(ARGV[2])))")

ANNOUNCE = Script(
    CHANGES,
    PLACES,
    """
-- What changed in the line, as `change` takes it; a list of channels, each with its messages; and, where there are
-- newcomers, what `positions` takes. One script: each command of its own would cost the client as much as all of it.
-- Who gets a message has to see the line changed. Messages are sent even if a key of the line holds something else.
local function line()
  change(cjson.decode(ARGV[1]))
  if ARGV[3] and redis.call('EXISTS', STAMP) == 1 then
    return cjson.encode(positions(cjson.decode(ARGV[3]), cjson.decode(ARGV[4])))
  end
  return false
end

local changed, found = pcall(line)
for _, said in ipairs(cjson.decode(ARGV[2])) do
  for _, message in ipairs(said[2]) do redis.call('PUBLISH', said[1], message) end
end
if changed then return found end
return redis.error_reply(type(found) == 'table' and found.err or found)
""",
)

PAGE = Script(
    _ORDER,
    _READABLE,
    """
-- How many, the key and the id behind which the first class goes on (none: from its start), and the credit and the name
-- of each bucket of each class. The next job of all buckets of a class is the root of a heap.
local limit, mark, found = tonumber(ARGV[1]), cjson.decode(ARGV[2]), {}
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

for _, buckets in ipairs(cjson.decode(ARGV[3])) do
  if #found >= 3 * limit then break end
  heap = {}
  for _, bucket in ipairs(buckets) do
    local stream = {credit = bucket[1], name = bucket[2], set = base .. 'bucket:' .. bucket[2], rank = 0}
    if mark[1] then stream.rank = behind(stream.set, mark[1] + bucket[1], mark[2]) end
    load(stream, 1)
    if ready(stream) then
      heap[#heap + 1] = stream
      up(#heap)
    end
  end
  mark = {}
  while heap[1] and #found < 3 * limit do
    local stream = heap[1]
    for _, value in ipairs({stream.name, stream.id, stream.ids[stream.at + 1]}) do found[#found + 1] = value end
    stream.at = stream.at + 2
    if not ready(stream) then heap[1] = heap[#heap] heap[#heap] = nil end
    if heap[1] then down(1) end
  end
end
return cjson.encode(found)
""",
)
