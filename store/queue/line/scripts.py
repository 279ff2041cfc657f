"""The scripts that Redis runs. KEYS[1] is what the keys of the line begin with.

Of these there are, where BASE is KEYS[1]:

- `BASE jobs`: a hash of the entries by job id, `changed|submitted|group|bucket`;
- `BASE bucket:NAME` and `BASE group:NAME`: sorted sets of ids by the time of submission. Every entry is in one of each:
  in the group without a name is what is held back;
- `BASE buckets` and `BASE groups`: sorted sets of the names of those that have members;
- `BASE stamp`: is there while all of this may be read. It expires unless a worker compares it with the rows;
- `BASE rebuild`: is there while a worker makes all of this anew.

Long arguments and answers are one JSON text each, because the client takes longer for a thousand values than Redis does
for the script.
"""

from store.redis import script as redis_script

LATE_US = 60_000_000
"""How long before a sweep a change may have been made that was committed after it."""


class Script(redis_script.Script):
    """A script that knows the keys of the line."""

    def __init__(self, *parts: str) -> None:
        super().__init__(_NAMES, *parts)


_NAMES = """
local base = KEYS[1]
local STAMP, REBUILD, JOBS = base .. 'stamp', base .. 'rebuild', base .. 'jobs'

local function fields(entry)
  return string.match(entry, '^(%d+)|(%d+)|([^|]*)|(.*)$')
end
"""

CHANGES = (
    f"local LATE = {LATE_US}"
    """
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
    leave('group', group, id)
  end
  if new == '' then redis.call('HDEL', JOBS, id) return end
  local _, submitted, group, bucket = fields(new)
  join('bucket', bucket, submitted, id)
  join('group', group, submitted, id)
  redis.call('HSET', JOBS, id, new)
end

-- Of each job its id, its entry ('' without one), and when that applies: '' always, '<T' unless Redis has an entry that
-- changed after T, or all that changed until T was compared with the rows; '=ENTRY' if Redis has just that one.
local function change(changes)
  local stamp = redis.pcall('GET', STAMP)
  local swept_at = type(stamp) == 'string' and tonumber(string.match(stamp, '|(%d+)$'))
  local known = swept_at and swept_at - LATE or 0
  for _, change in ipairs(changes) do
    local id, new, rule = change[1], change[2], change[3]
    local old, kind = redis.call('HGET', JOBS, id) or '', string.sub(rule, 1, 1)
    local applies, of = true, string.sub(rule, 2)
    if kind == '=' then applies = old == of end
    if kind == '<' then applies = math.max(tonumber((fields(old))) or 0, known) <= tonumber(of) end
    if applies then move(id, old, new) end
  end
end
"""
)
"""The function `change` of a script."""

CHANGE = Script(CHANGES, "change(cjson.decode(ARGV[1]))")

STATE = Script("""
-- The stamp, and whether the sets have as many members as there are entries. Fails if a key is of another type.
local function members(kind)
  local sum = 0
  for _, name in ipairs(redis.call('ZRANGE', base .. kind .. 's', 0, -1)) do
    sum = sum + redis.call('ZCARD', base .. kind .. ':' .. name)
  end
  return sum
end

local entries = redis.call('HLEN', JOBS)
local sound = members('bucket') == entries and members('group') == entries
return {redis.call('GET', STAMP) or '', sound and 1 or 0}
""")

LOOK = Script("""
-- The entry of each job, '' without one, and with a '!' before it if its sets have the job otherwise.
local function stands(kind, name, submitted, id)
  local score = redis.call('ZSCORE', base .. kind .. ':' .. name, id)
  return score and tonumber(score) == tonumber(submitted)
end

local found = {}
for i, id in ipairs(cjson.decode(ARGV[1])) do
  local entry = redis.call('HGET', JOBS, id) or ''
  local _, submitted, group, bucket = fields(entry)
  local sound = bucket and stands('bucket', bucket, submitted, id) and stands('group', group, submitted, id)
  found[i] = (entry == '' or sound) and entry or '!' .. entry
end
return cjson.encode(found)
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
