import { expect, test } from "vitest";
import type { LiveLine } from "../../../api/wire";
import type { Items, LiveEvent } from "../../../live/events";
import { after, type Unfinished } from "./unfinished";

const bar = (text: string, rank = 0): LiveEvent => ({
  kind: "line",
  line: { job_id: "job_a", attempt: 1, rank, stream: "stderr", text },
});

const items = (more: Partial<Items>): LiveEvent => ({
  kind: "items",
  items: { job_id: "job_a", position: 9, metrics: {}, logs: [], events: [], ...more },
});

const row = { line: 1, time: "2026-01-01T00:00:00Z", attempt: 1, stream: "stderr" as const, text: "100%" };
const state = { seq: 9, time: row.time, type: "state" as const, attempt: 1, data: {} };

function texts(...events: LiveEvent[]): string[] {
  const lines = events.reduce<Unfinished>(after, new Map<string, LiveLine>());
  return [...lines.values()].map((line) => line.text);
}

test("a line without an end is replaced by its newer text until it is stored", () => {
  expect(texts(bar("1%"), bar("2%"), bar("7%", 1))).toEqual(["2%", "7%"]);
  expect(texts(bar("99%"), bar("7%", 1), items({ logs: [{ ...row, rank: 0 }] }))).toEqual(["7%"]);
  expect(texts(bar("99%"), bar(""))).toEqual([]);
});

test("lines of another stream leave it, and the end of the attempt takes all", () => {
  expect(texts(bar("9%"), items({ logs: [{ ...row, rank: 0, stream: "stdout" }] }))).toEqual(["9%"]);
  expect(texts(bar("9%"), items({ events: [state] }))).toEqual([]);
});
