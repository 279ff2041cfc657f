import { expect, test } from "vitest";
import type { JobSummary } from "../../api/wire";
import { columnsOf, USUAL } from "../../runs/columns";
import { cellOf, fits } from "./cells";
import { filterOf, queryOf } from "./filter";
import { labelChanges, labelsText } from "./edits";
import { fitting, leastOf, tracksOf, type Place } from "./layout";
import { near, placed } from "./window";

test("the address holds which jobs are listed, and how", () => {
  const filter = filterOf(new URLSearchParams("q=digits&state=failed,running&sort=-name&group=team"));
  expect(filter).toEqual({
    conditions: { q: ["digits"], state: ["failed", "running"] },
    groupBy: "label:team",
    sort: "name",
    isReversed: true,
  });
  expect(queryOf(filter)).toEqual({ q: ["digits"], state: ["failed", "running"], sort: "-name" });
  const by = (group: string): string => filterOf(new URLSearchParams({ group })).groupBy;
  expect(["sweep", "config.optimizer.lr", "no key"].map(by)).toEqual(["sweep", "config.optimizer.lr", ""]);
  expect(queryOf(filterOf(new URLSearchParams("sort=-colour")))).toEqual({ sort: "created" });
});

test("only rows near the screen are drawn", () => {
  expect(near(10_000, 32, 200, 800)).toEqual({ from: 0, to: 27 });
  expect(near(10_000, 32, -32_000, 800)).toEqual({ from: 992, to: 1033 });
  expect(near(10, 32, 200, 800)).toEqual({ from: 0, to: 10 });
  expect(near(100, 32, -9_000, 800)).toEqual({ from: 92, to: 100 });
});

test("labels are edited as one text", () => {
  const labels = { team: "roads", done: "", note: "a=b" };
  expect(labelsText(labels)).toBe("done, note=a=b, team=roads");
  expect(labelChanges(labels, labelsText(labels))).toBeNull();
  expect(labelChanges(labels, "team=bridges,, note=a=b , new")).toEqual({
    team: "bridges",
    done: null,
    new: "",
  });
});

test("a line that stays is the same object after a scroll, so that its row is not drawn again", () => {
  const lines = ["a", "b", "c", "d"];
  const first = placed(lines, { from: 0, to: 3 }, []);
  const next = placed(lines, { from: 1, to: 4 }, first);
  expect(next).toEqual([
    { line: "b", at: 1 },
    { line: "c", at: 2 },
    { line: "d", at: 3 },
  ]);
  expect([next[0], next[1]].map((one, at) => one === first[at + 1])).toEqual([true, true]);
  expect(placed([...lines, "e"], { from: 1, to: 4 }, next)).toBe(next);
  expect(placed(["new", ...lines], { from: 1, to: 4 }, next)).toEqual([
    { line: "a", at: 1 },
    { line: "b", at: 2 },
    { line: "c", at: 3 },
  ]);
});

test("a cell shows a value in short, and says the whole of it", () => {
  const columns = JSON.parse(
    '{"config.a":"cosine with restarts","config.b":null,"metric:loss:last":"NaN","metric:loss:min":"-Infinity","metric:loss:best":0.123456789,"config.list":[1,2]}',
  ) as Record<string, never>;
  const job = { labels: { team: "x" }, columns } as unknown as JobSummary;
  expect(cellOf(job, "config.a")).toEqual({
    ...{ text: "cosine with restarts", isNumber: false, title: "cosine with restarts" },
  });
  expect(cellOf(job, "config.b").text).toBe("");
  expect(cellOf(job, "metric:loss:last")).toEqual({ text: "NaN", isNumber: true, title: "NaN" });
  expect(cellOf(job, "metric:loss:min").text).toBe("-∞");
  expect(cellOf(job, "metric:loss:best")).toMatchObject({ text: "0.1235", title: "0.123456789" });
  expect(cellOf(job, "config.list").text).toBe("1,2");
  expect(cellOf(job, "label:team").text).toBe("x");
});

test("a column with the name of what each object has shows nothing", () => {
  const job = { labels: {}, columns: {} } as unknown as JobSummary;
  for (const name of ["constructor", "__proto__", "label:constructor", "config.toString", "label:__proto__"])
    expect(cellOf(job, name).text).toBe("");
});

test("what fits into the narrowest cell is drawn without an ellipsis", () => {
  expect([
    fits("bridges"),
    fits("bridges-2"),
    fits("0.000123456", true),
    fits("0.12345678901", true),
  ]).toEqual([true, false, true, false]);
});

test("a screen shows the columns that it has room for, each at least as wide as it needs", () => {
  const columns = columnsOf([...USUAL, "label:team"]);
  const at = (screen: number): Place => ({ screen, isBeside: false });
  const names = (screen: number): readonly string[] => fitting(columns, at(screen)).map(({ name }) => name);
  expect(names(1440)).toEqual([...USUAL, "label:team"]);
  expect(names(1000)).toEqual(["progress", "metric", "age", "label:team"]);
  expect(names(800)).toEqual(["progress", "age", "label:team"]);
  expect(names(390)).toEqual([]);
  expect(tracksOf(fitting(columns, at(800)), at(800))).toBe(
    "28px 108px minmax(200px, 3fr) minmax(176px, 2fr) minmax(72px, 0fr) minmax(128px, 1fr)",
  );
  expect(leastOf(fitting(columns, at(800)), at(800))).toBe(28 + 108 + 200 + 176 + 72 + 128);
  expect([leastOf([], at(390)), tracksOf([], at(390))]).toEqual([0, "28px 28px minmax(0, 1fr)"]);
});
