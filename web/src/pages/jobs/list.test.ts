import { afterEach, expect, test, vi } from "vitest";
import type { JobSummary } from "../../api/wire";
import { removeAll, serve, settled } from "../../testing";
import { filterOf } from "./filter";
import { JobList } from "./list.svelte";

const TOTAL = 1000;
const LONG = 1500;

let list: JobList;

afterEach(async () => {
  list.close();
  vi.useRealTimers();
  await removeAll();
  vi.unstubAllGlobals();
});

/** Answers as the service does: pages of at most `limit` rows after a cursor, here the number of a row. */
async function opened(uppermost = 0): Promise<readonly number[]> {
  const limits: number[] = [];
  serve(({ query }) => {
    const limit = Number(query.get("limit"));
    const from = Number(query.get("after") ?? 0);
    limits.push(limit);
    const to = Math.min(TOTAL, from + limit);
    const data = Array.from({ length: to - from }, (_, at) => job(`job_${from + at || uppermost}`));
    return { data, has_more: to < TOTAL, next: to < TOTAL ? String(to) : null, total: TOTAL, counts: {} };
  });
  list = new JobList();
  list.show(filterOf(new URLSearchParams()), []);
  await settled();
  return limits;
}

function job(id: string): JobSummary {
  return { id, state: "running", version: 1, position: 1 } as JobSummary;
}

test("a list reads small pages ahead of what is shown, and as much as is missing after a jump", async () => {
  const limits = await opened();
  await list.more(90);
  expect(list.rows.length).toBe(100);
  await list.more(150);
  expect(list.rows.length).toBe(350);
  await list.more(650);
  expect(list.rows.length).toBe(650);
  await list.more(TOTAL);
  await list.more(TOTAL);
  await list.more(TOTAL);
  expect(limits).toEqual([100, 250, 300, 350]);
  expect(list.rows.map(({ id }) => id)).toEqual(Array.from({ length: TOTAL }, (_, at) => `job_${at}`));
});

test("a job that moved to a later page meanwhile is listed once, as the stream had it last", async () => {
  await opened(150);
  list.heard({ kind: "job", job: { ...job("job_150"), state: "failed", version: 2 } });
  await list.more(300);
  expect(list.rows.filter(({ id }) => id === "job_150").map(({ state }) => state)).toEqual(["failed"]);
  expect(list.rows.length).toBe(349);
});

/** Lists all of a long table. Returns its ids, which a test changes, and what reads the list again. */
async function wholeTable(): Promise<{ ids: string[]; again: () => Promise<void> }> {
  vi.useFakeTimers();
  const ids = Array.from({ length: LONG }, (_, at) => `job_${at}`);
  serve(({ query }) => {
    const after = query.get("after");
    const from = after === null ? 0 : ids.indexOf(after) + 1;
    const found = ids.slice(from, from + Number(query.get("limit")));
    const hasMore = from + found.length < ids.length;
    const next = hasMore ? found.at(-1) : null;
    return { data: found.map(job), has_more: hasMore, next, total: ids.length, counts: {} };
  });
  list = new JobList();
  list.show(filterOf(new URLSearchParams()), []);
  await settled();
  while (list.hasMore) await list.more(LONG);
  const again = async (): Promise<void> => {
    list.heard({ kind: "changed", topic: "jobs" });
    await vi.advanceTimersByTimeAsync(1_000);
    await settled();
  };
  return { ids, again };
}

const idsListed = (): readonly string[] => list.rows.map(({ id }) => id);

test("new jobs above a long list drop no row where its first page ends", async () => {
  const { ids, again } = await wholeTable();
  ids.unshift(...Array.from({ length: 7 }, (_, at) => `new_${at}`));
  await again();
  expect(idsListed()).toEqual(ids);
});

test("a job that came into the first page from far below, and ones that went, drop no other row", async () => {
  const { ids, again } = await wholeTable();
  ids.splice(10, 3);
  ids.splice(999, 0, ...ids.splice(1_400, 1));
  await again();
  expect(idsListed()).toEqual(ids);
});

test("a long list of which the first page knows no row ends there, and is read on", async () => {
  const { ids, again } = await wholeTable();
  ids.unshift(...Array.from({ length: 1_200 }, (_, at) => `new_${at}`));
  await again();
  expect(idsListed()).toEqual(ids.slice(0, 1_000));
  while (list.hasMore) await list.more(ids.length);
  expect(idsListed()).toEqual(ids);
});
