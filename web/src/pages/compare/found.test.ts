import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { JobView } from "../../api/wire";
import { live } from "../../live/live.svelte";
import { route, setQuery } from "../../router.svelte";
import { eventually, removeAll, serve, settled, show, textOf } from "../../testing";
import Compare from "./Compare.svelte";
import "./Found.svelte"; // here, so that a busy machine compiles it before a test waits
import { columnsFor, rowsOf, withPoints } from "./found";
import { plottedOf } from "./plotted";

beforeEach(() => {
  vi.spyOn(live, "watch").mockReturnValue(() => undefined);
});

afterEach(async () => {
  await removeAll();
  setQuery({ jobs: null, sweep: null, state: null });
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

const known = (name: string, jobs: number, differs = true) => ({ name, jobs, differs });

test("columns are settings that differ, and metrics: the least, the greatest or the newest of each", () => {
  const found = columnsFor([
    ...[
      known("config.optimizer.lr", 9),
      known("config.code", 9),
      known("config.git.diff", 9),
      known("config.same", 9, false),
      known("name", 9),
      known("notes", 3),
    ],
    ...[known("metric:lr:last", 9), known("metric:train/loss:last", 9), known("metric:val/accuracy:last", 8)],
  ]);
  expect(found.map(({ key, title, isMetric }) => [key, title, isMetric])).toEqual([
    ["config.optimizer.lr", "optimizer.lr", false],
    ["metric:val/accuracy:max", "greatest val/accuracy", true],
    ["metric:train/loss:min", "least train/loss", true],
    ["metric:lr:last", "lr", true],
  ]);
  const many = Array.from({ length: 40 }, (_, i) => [
    known(`config.k${i}`, 9),
    known(`metric:m${i}:last`, 9),
  ]);
  expect(columnsFor(many.flat())).toHaveLength(30);
});

test("values that are no numbers are no points of a metric", () => {
  const named = columnsFor([known("config.on", 2), known("metric:loss:last", 2)]);
  const columns = { "config.on": true, "metric:loss:min": "NaN" };
  expect(rowsOf([{ id: "a", name: "x", columns }], named)[0]?.values).toEqual({
    "config.on": "true",
    "metric:loss:min": NaN,
  });
  expect(rowsOf([{ id: "a", name: "x" }], named)[0]?.values).toEqual({});
});

test("what trials of a sweep set is plotted, too, in place of the list of options", () => {
  const sweep = { id: "swp_1", name: "s", trial: 1, point: { "args.lr": 0.1, "config.width": 8 } };
  const jobs = [{ id: "a", name: "x", sweep, columns: { "config.args": "[]", "config.width": 8 } }];
  const named = withPoints(columnsFor([known("config.args", 2), known("config.width", 2)]), jobs);
  expect(named.map(({ key, title }) => [key, title])).toEqual([
    ["args.lr", "lr"],
    ["config.width", "width"],
  ]);
  expect(rowsOf(jobs, named)[0]?.values["args.lr"]).toBe(0.1);
});

test("compared jobs are plotted by their settings that differ, their best and their newest values", () => {
  const view = (name: string, lr: number): JobView =>
    ({
      ...{ id: name, name, spec: { name, config: { lr }, checkpoint: { monitor: "val/loss", mode: "min" } } },
      ...{ metrics: { "val/loss": "NaN", lr: lr / 2 }, best: { metric: "val/loss", value: lr } },
    }) as unknown as JobView;
  const { rows, named } = plottedOf([view("a", 1), view("b", 2)]);
  expect(named.map(({ key, title, better }) => [key, title, better])).toEqual([
    ["config.lr", "config.lr", null],
    ["best:val/loss", "best val/loss", "min"],
    ["last:val/loss", "val/loss", "min"],
    ["last:lr", "lr", null],
  ]);
  expect(rows[1]?.values).toEqual({ "config.lr": 2, "best:val/loss": 2, "last:val/loss": NaN, "last:lr": 1 });
});

test("an address with a filter plots up to a thousand runs, and takes those that are kept into the curves", async () => {
  const asked = serve(({ path }) => {
    if (path === "v1/jobs/columns")
      return { data: [known("config.lr", 2), known("metric:loss:last", 2)], jobs: 2 };
    if (path === "v1/jobs") {
      const columns = (lr: number) => ({ "config.lr": lr, "metric:loss:min": 3 - lr });
      const data = [1, 2].map((lr) => ({ id: `job_${lr}`, name: `run ${lr}`, columns: columns(lr) }));
      return { data, has_more: false };
    }
    return path === "v1/metrics" ? { jobs: [], series: [] } : null;
  });
  setQuery({ sweep: "swp_1" });
  const host = show(Compare, {});
  await eventually(() => {
    flushSync();
    expect(textOf(host)).toContain("2 runs");
  });
  const list = asked.find(({ path }) => path === "v1/jobs");
  expect([list?.query.get("sweep"), list?.query.get("limit")]).toEqual(["swp_1", "1000"]);
  expect(list?.query.getAll("columns")).toEqual(["config.lr", "metric:loss:min"]);
  const take = [...host.querySelectorAll("button")].find((button) => textOf(button) === "Curves of these 2");
  take?.click();
  flushSync();
  expect(route().query.get("jobs")).toBe("job_2,job_1");
  await settled();
});
