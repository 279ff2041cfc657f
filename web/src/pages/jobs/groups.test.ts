import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { JobSummary } from "../../api/wire";
import { removeAll, serve, settled } from "../../testing";
import { filterOf } from "./filter";
import { GroupList } from "./groups.svelte";

const PAGE = 200;
const LONG = 450;

let groups: GroupList;

beforeEach(() => vi.useFakeTimers());
afterEach(async () => {
  groups.close();
  vi.useRealTimers();
  await removeAll();
  vi.unstubAllGlobals();
});

function job(id: string, loss: number): JobSummary {
  return { id, state: "running", version: 1, position: 1, columns: { loss } } as unknown as JobSummary;
}

/** Opens the one group of these jobs; their ids and the value of their column are what a test changes. */
async function opened(count: number): Promise<{ ids: string[]; loss: number }> {
  const stored = { ids: Array.from({ length: count }, (_, at) => `job_${at}`), loss: 1 };
  serve(({ query }) => {
    const group = { key: "=a", value: "a", name: null, counts: { running: stored.ids.length }, total: 1 };
    if (!query.has("in_group")) return { data: [], has_more: false, groups: [group] };
    const after = query.get("after");
    const from = after === null ? 0 : stored.ids.indexOf(after) + 1;
    const found = stored.ids.slice(from, from + Number(query.get("limit")));
    const hasMore = from + found.length < stored.ids.length;
    return { data: found.map((id) => job(id, stored.loss)), has_more: hasMore, next: found.at(-1) };
  });
  groups = new GroupList();
  groups.show(filterOf(new URLSearchParams("group=team")), ["loss"], ["=a"]);
  await settled();
  return stored;
}

async function again(): Promise<void> {
  groups.again();
  await vi.advanceTimersByTimeAsync(1_000);
  await settled();
}

test("an open group is read again with its jobs and their columns, and not with its count alone", async () => {
  const stored = await opened(2);
  stored.ids.unshift("new");
  stored.loss = 0.5;
  await again();
  expect(groups.jobs.map(({ id, columns }) => [id, columns])).toEqual([
    ["new", { loss: 0.5 }],
    ["job_0", { loss: 0.5 }],
    ["job_1", { loss: 0.5 }],
  ]);
  expect(groups.groups[0]?.counts).toEqual({ running: 3 });
  expect(groups.isLive).toBe(true);
});

test("a long group is read on, and keeps what was read when it is read again", async () => {
  const { ids } = await opened(LONG);
  expect(groups.jobs).toHaveLength(PAGE);
  expect(groups.lines.at(-1)?.kind).toBe("more");
  await groups.more("=a");
  await groups.more("=a");
  ids.unshift("new");
  await again();
  expect(groups.jobs.map(({ id }) => id)).toEqual(ids);
  expect(groups.lines.at(-1)?.kind).toBe("job");
});
