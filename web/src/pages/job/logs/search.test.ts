import { expect, test } from "vitest";
import type { LogMatch } from "../../../api/wire";
import { matches, search, shownRanges, type Found, type ReadMatches, type SearchPage } from "./search";

const line = (number: number): LogMatch =>
  ({ line: number, time: "", attempt: 1, rank: 0, stream: "stdout", text: "", spans: [] }) satisfies LogMatch;

function service(pages: readonly SearchPage[]): { read: ReadMatches; asked: string[] } {
  const asked: string[] = [];
  return { asked, read: (after) => Promise.resolve(pages[asked.push(after) - 1] as SearchPage) };
}

async function all(read: ReadMatches, before?: Found): Promise<Found[]> {
  const found: Found[] = [];
  for await (const state of search(read, before)) found.push(state);
  return found;
}

test("searches page by page to the end of the log, also where an answer has no room for all matches", async () => {
  const { read, asked } = service([
    { data: [line(1)], last_line: 400, next: "1" },
    { data: [], last_line: 200, next: "200" },
    { data: [line(250)], last_line: 400, next: null },
  ]);
  const found = await all(read);
  expect(asked).toEqual(["0", "1", "200"]);
  expect(found.map((state) => [state.lines.length, state.searched, state.isWhole])).toEqual([
    [1, 1, false],
    [1, 200, false],
    [2, 400, true],
  ]);
});

test("goes on behind what was searched, as the log has grown", async () => {
  const { read, asked } = service([{ data: [line(500)], last_line: 510, next: null }]);
  const [found] = await all(read, { lines: [line(1)], searched: 400, isWhole: true });
  expect(asked).toEqual(["400"]);
  expect(found).toMatchObject({ lines: [{ line: 1 }, { line: 500 }], searched: 510, isWhole: true });
});

test("rests after many matches, and goes on from there", async () => {
  const page = (first: number): SearchPage => ({
    data: Array.from({ length: 1000 }, (_, i) => line(first + i)),
    last_line: 30_000,
    next: String(first + 999),
  });
  const read: ReadMatches = (after) => Promise.resolve(page(Number(after) + 1));
  const rested = (await all(read)).at(-1);
  expect([rested?.lines.length, rested?.searched, rested?.isWhole]).toEqual([20_000, 20_000, false]);
  expect((await all(read, rested)).at(-1)?.lines.at(-1)?.line).toBe(40_000);
});

test("finds text literally, also where it could be a pattern", () => {
  expect(matches("a.b A.B axb", "a.b")).toEqual([
    { start: 0, end: 3 },
    { start: 4, end: 7 },
  ]);
  expect(matches("a".repeat(64), "(a|a)*b")).toEqual([]);
  expect(matches("x", "(")).toEqual([]);
  expect(matches("x", "")).toEqual([]);
});

test("marks where the service found a pattern, among colours and beside other characters", () => {
  expect(shownRanges("loss nan", [[5, 8]])).toEqual([{ start: 5, end: 8 }]);
  expect(shownRanges("\x1b[31mloss\x1b[0m nan", [[14, 17]])).toEqual([{ start: 5, end: 8 }]);
  expect(shownRanges("😀 nan", [[2, 5]])).toEqual([{ start: 3, end: 6 }]);
  expect(shownRanges("old\rnew", [[0, 3]])).toEqual([]);
});
