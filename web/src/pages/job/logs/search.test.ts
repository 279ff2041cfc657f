import { expect, test } from "vitest";
import type { LogLine } from "../../../api/wire";
import { matches, search, type SearchPage } from "./search";

const line = (number: number): LogLine =>
  ({ line: number, time: "", attempt: 1, rank: 0, stream: "stdout", text: "" }) satisfies LogLine;

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

test("finds text literally, and patterns where asked", () => {
  expect(matches("a.b A.B axb", "a.b", { regex: false })).toEqual([
    { start: 0, end: 3 },
    { start: 4, end: 7 },
  ]);
  expect(matches("axb", "a.b", { regex: true })).toHaveLength(1);
  expect(matches("x", "(", { regex: true })).toEqual([]);
  expect(matches("abc", "x*", { regex: true })).toEqual([]);
});
