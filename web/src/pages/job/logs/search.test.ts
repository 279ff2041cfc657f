import { expect, test } from "vitest";
import type { LogMatch } from "../../../api/wire";
import { matches, search, shownRanges, type SearchPage } from "./search";

const line = (number: number): LogMatch =>
  ({ line: number, time: "", attempt: 1, rank: 0, stream: "stdout", text: "", spans: [] }) satisfies LogMatch;

test("searches page by page to the end of the log", async () => {
  const pages: SearchPage[] = [
    { data: [line(1)], complete: false, next: "100" },
    { data: [], complete: false, next: "200" },
    { data: [line(250)], complete: true, next: null },
  ];
  const asked: (string | null)[] = [];
  const found = [];
  for await (const state of search((after) => {
    asked.push(after);
    return Promise.resolve(pages[asked.length - 1] as SearchPage);
  }))
    found.push(state.lines.length);
  expect(asked).toEqual([null, "100", "200"]);
  expect(found).toEqual([1, 1, 2]);
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
