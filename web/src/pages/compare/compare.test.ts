import { expect, test, vi } from "vitest";
import type { JobView } from "../../api/wire";
import { point } from "../../charts/testing";
import { bestOf, columnsOf, deltaOf, orderOf, type Column } from "./columns";
import { ranFor, tableKeys, type Compared } from "./compared";
import { specRows } from "./diff";
import { Extremes } from "./extremes.svelte";
import { groupingsOf, groupsOf } from "./groups";
import { moved } from "./order";
import { settingsOf } from "./settings";
import { queryOf, readCompare } from "./view";

test("specs are laid beside one another by path", () => {
  const rows = specRows([
    { trainer: "segmentation", config: { lr: 0.1, augment: ["flip"] }, labels: {} },
    { trainer: "segmentation", config: { lr: 0.2, augment: ["flip"] }, labels: { team: "a" } },
  ]);
  expect(rows.filter((row) => !row.isEqual)).toEqual([
    { path: "config.lr", values: ["0.1", "0.2"], isEqual: false },
    { path: "labels.team", values: [null, '"a"'], isEqual: false },
  ]);
  expect(rows.filter((row) => row.isEqual).map((row) => row.path)).toEqual(["config.augment", "trainer"]);
});

test("the same specs are laid beside one another once, other ones anew", () => {
  const specs = [{ a: 1 }, { a: 2 }];
  const found = specRows(specs);
  expect(specRows([...specs])).toBe(found);
  expect(specRows([specs[0], { a: 3 }])[0]?.values).toEqual(["1", "3"]);
  expect(specRows([specs[0]])[0]?.values).toEqual(["1"]);
});

test("a null and a missing key differ", () => {
  expect(specRows([{ a: null }, {}])).toEqual([{ path: "a", values: ["null", null], isEqual: false }]);
});

const job = (changes: Partial<JobView>): JobView => changes as JobView;

test("the table shows keys of most jobs, evaluation first", () => {
  const jobs = [
    job({ metrics: { "train/loss": 1, "val/iou": 1, lr: 1 } }),
    job({ metrics: { "train/loss": 1, "val/iou": 1, odd: 2 } }),
  ];
  expect(tableKeys(jobs, 3)).toEqual(["val/iou", "train/loss", "lr"]);
});

test("a job ran from its start to its end, or to now", () => {
  const started_at = "2026-01-01T00:00:00Z";
  expect(ranFor(job({ started_at, finished_at: "2026-01-01T00:01:00Z" }))).toBe(60);
  expect(ranFor(job({ started_at }), Date.parse("2026-01-01T00:00:09Z"))).toBe(9);
  expect(ranFor(job({ started_at: null }))).toBeNull();
});

function column(values: readonly (number | string | null)[], changes: Partial<Column> = {}): Column {
  const texts = values.map(String);
  return { id: "v", title: "v", name: "v", better: "min", isNumeric: true, values, texts, ...changes };
}

test("settings that differ come with those of the config first, and never the name", () => {
  const specs = [
    { name: "a", labels: { team: "x" }, config: { lr: 1 }, after: [1] },
    { name: "b", labels: { team: "y" }, config: { lr: 2 }, after: [] },
  ];
  expect(settingsOf(specs).map(({ path }) => path)).toEqual(["config.lr", "labels.team", "after"]);
});

test("the trainer comes first, and what most jobs lack last", () => {
  const specs = [
    { trainer: "a", config: { lr: 1 }, resources: { device: "cpu" }, labels: {} },
    { trainer: "a", config: { lr: 2 }, resources: { device: "cuda" }, labels: {} },
    { trainer: "b", config: { width: 3 }, resources: { device: "cpu" }, labels: { team: "y" } },
  ];
  expect(settingsOf(specs).map(({ path }) => path)).toEqual([
    ...["trainer", "config.lr", "resources.device", "config.width", "labels.team"],
  ]);
});

test("where the code is from is one setting: the commit, and what ran of it if not all was committed", () => {
  const spec = (digest: string, git: object | null): unknown => ({
    trainer: "script",
    config: { code: `bundle:sha256:${digest.repeat(64)}`, ...(git && { git }) },
  });
  const git = { commit: "abcdef".repeat(7), branch: "x", dirty: false, diff: "" };
  const specs = [
    spec("1", git),
    spec("2", { ...git, dirty: true, diff: "+" }),
    spec("3", null),
    { config: {} },
  ];
  expect(settingsOf(specs).filter(({ path }) => path.startsWith("co"))).toEqual([
    {
      ...{ path: "code", isEqual: false },
      values: ['"abcdefabcdef"', '"abcdefabcdef + 22222222"', '"33333333"', null],
    },
  ]);
});

test("settings have short names that no metric has; null is a value, and what is not there a dash", () => {
  const specs = [{ args: { lr: 1, clip: null } }, { args: { lr: 2 }, labels: { team: "a\u202eb" } }];
  const jobs = specs.map((spec) => ({ view: { spec, metrics: {} } })) as unknown as Compared[];
  const found = columnsOf(jobs, settingsOf(specs), ["lr"], 0).slice(1, 4);
  expect(found.map(({ title, name, texts }) => [title, name, ...texts])).toEqual([
    ["clip", "args.clip", "null", "—"],
    ["args.lr", "args.lr", "1", "2"],
    ["team", "labels.team", "—", "a⟨U+202E⟩b"],
  ]);
});

test("a metric is better as the jobs say that watch it, or as its name says", () => {
  const spec = { checkpoint: { monitor: "val/loss", mode: "max" } };
  const views = [{ spec, state: "running", metrics: {}, started_at: null }];
  const jobs = views.map((view) => ({ view }) as unknown as Compared);
  const found = columnsOf(jobs, [], ["val/loss", "val/iou", "odd"], 0);
  expect(found.slice(1, 4).map(({ better }) => better)).toEqual(["max", "max", null]);
});

test("metrics have their best values where these are read and it is known which way is better", () => {
  const jobs = ["a", "b"].map((id) => ({ id, view: { spec: {}, metrics: { "val/iou": 0.1, lr: 1 } } }));
  const extremes = new Map([["a", new Map([["val/iou", { low: 0, high: 0.9 }]])]]);
  const found = columnsOf(jobs as unknown as Compared[], [], ["val/iou", "lr"], 0, extremes);
  expect(found.slice(1, 3).map(({ id, title, texts }) => [id, title, ...texts])).toEqual([
    ["metric:val/iou", "greatest val/iou", "0.9", "—"],
    ["metric:lr", "lr", "1", "1"],
  ]);
});

test("the least and the greatest value widen as points come", async () => {
  const keys = [{ key: "loss", low: 1, high: 2 }, { key: "odd" }];
  vi.stubGlobal("fetch", () =>
    Promise.resolve(new Response(JSON.stringify({ jobs: [{ job_id: "a", keys }], series: [] }))),
  );
  const extremes = new Extremes();
  await extremes.read(["a"]);
  for (const value of [0.5, 3, NaN]) extremes.heard(point("loss", 1, value, 1, "a"));
  extremes.heard(point("late", 1, 7, 1, "a"));
  extremes.heard(point("loss", 1, 0, 1, "another"));
  expect([...(extremes.found?.get("a") ?? [])]).toEqual([
    ["loss", { low: 0.5, high: 3 }],
    ["late", { low: 7, high: 7 }],
  ]);
  vi.unstubAllGlobals();
});

test("the best of a column is the least or the greatest number, where they differ", () => {
  expect(bestOf(column([3, 1, null, 2]))).toBe(1);
  expect(bestOf(column([3, NaN, Infinity, 2], { better: "max" }))).toBe(3);
  expect([bestOf(column([1, 1])), bestOf(column([1, null]))]).toEqual([null, null]);
  expect([bestOf(column([NaN, 2])), bestOf(column([Infinity, NaN]))]).toEqual([2, null]);
  expect(bestOf(column([1, 2], { better: null }))).toBeNull();
});

test("a difference has its sign, its share of the baseline, and a verdict", () => {
  expect(deltaOf(0.9, 0.8, "max")).toEqual({ text: "+0.1", percent: "+12%", verdict: "better" });
  expect(deltaOf(0.5512, 0.45571, "max")?.text).toBe("+0.0955");
  expect(deltaOf(0.5, 0.500001, "min")).toEqual({ text: "−1e-6", percent: "−0.0002%", verdict: "better" });
  expect(deltaOf(-2, -1, "max")).toEqual({ text: "−1", percent: "−100%", verdict: "worse" });
  expect(deltaOf(1, 0, "min")).toEqual({ text: "+1", percent: "", verdict: "worse" });
  expect(deltaOf(1.997, 1, "min")?.percent).toBe("+100%");
  expect(
    [deltaOf(0, -2, "max"), deltaOf(1, -2, "max"), deltaOf(30, 1, "max")].map((one) => one?.percent),
  ).toEqual([...["+100%", "", ""]]);
  expect(deltaOf(3, 2, null)?.verdict).toBeNull();
  expect(deltaOf(2, 2, "min")?.verdict).toBe("equal");
  expect([deltaOf(NaN, 1, "min"), deltaOf("a", 1, null), deltaOf(null, 1, "min")]).toEqual([
    null,
    null,
    null,
  ]);
});

test("rows are sorted by numbers, words and states; those without a value come last both ways", () => {
  const names = ["a", "b", "c", "d"];
  const sorted = (values: readonly (number | string | null)[], by = "v", id = "v"): string =>
    orderOf([column(values, { id })], names, by)
      .map((place) => names[place])
      .join("");
  expect(sorted([2, null, 10, 1])).toBe("dacb");
  expect(sorted([2, NaN, 10, 1], "-v")).toBe("cadb");
  expect(sorted(["x10", "x9", "x1", null])).toBe("cbad");
  expect(sorted(["failed", "running", "queued", "succeeded"], "state", "state")).toBe("bcda");
  expect([sorted([1, 2, 3, 4], "-name"), sorted([1, 2, 3, 4], "gone")]).toEqual(["dcba", "abcd"]);
});

test("an item moves to a place within the list", () => {
  expect(moved(["a", "b", "c"], "a", 1)).toEqual(["b", "a", "c"]);
  expect(moved(["a", "b", "c"], "c", -1)).toEqual(["c", "a", "b"]);
  expect(moved(["a", "b", "c"], "a", 9)).toEqual(["b", "c", "a"]);
});

test("a view survives the address; no metric at all is a choice, too", () => {
  for (const metrics of [null, [], ["val/loss", "lr"]]) {
    const view = {
      base: "job_1",
      sort: "-name",
      group: "config.lr",
      isBest: true,
      metrics,
      pair: ["job_1", "job_2"],
    };
    const query = Object.entries(queryOf(view)).filter(([, value]) => value !== null) as [string, string][];
    expect(readCompare(new URLSearchParams(query))).toEqual(view);
  }
});

function member(id: string, lr: number, labels: Record<string, string>, sweep: string | null): Compared {
  const view = { id, labels, sweep: sweep && { name: sweep }, spec: { name: id, config: { lr }, labels } };
  return { id, view, colour: { slot: 1, dash: [] }, devices: "" } as unknown as Compared;
}

test("jobs are grouped by what some of them share: a sweep, a label or a setting", () => {
  const jobs = [
    member("a", 0.1, { seed: "1" }, "lr"),
    member("b", 0.1, { seed: "2" }, null),
    member("c", 1, { seed: "1", "odd.key": "x,y" }, "lr"),
  ];
  expect(groupingsOf(jobs.map(({ view }) => view)).map(({ id }) => id)).toEqual([
    ...["sweep", "config.lr", "label:seed", "label:odd.key", "but:labels.seed"],
  ]);
  const named = (by: string): unknown =>
    groupsOf(jobs, by).map(({ name, jobs: ids }) => [name, ids.join("")]);
  expect(named("config.lr")).toEqual([
    ["lr 0.1", "ab"],
    ["lr 1", "c"],
  ]);
  expect(named("label:seed")).toEqual([
    ["seed 1", "ac"],
    ["seed 2", "b"],
  ]);
  expect(named("sweep")).toEqual([
    ["sweep lr", "ac"],
    ["sweep none", "b"],
  ]);
  const odd = groupsOf(jobs, "label:odd.key");
  expect(odd.every(({ id }) => !id.includes(","))).toBe(true);
  expect(new Set(odd.map(({ colour }) => colour.slot)).size).toBe(2);
});

test("jobs that differ in a seed alone are a group, with what they share as its name", () => {
  const jobs = [1, 2, 3].flatMap((seed) =>
    ["adam", "sgd"].map((optimizer) => {
      const spec = { args: { lr: optimizer === "sgd" ? 0.1 : 0.01, optimizer, seed } };
      return { id: `${optimizer}${seed}`, view: { sweep: null, spec } } as unknown as Compared;
    }),
  );
  const offered = groupingsOf(jobs.map(({ view }) => view));
  expect(offered.map(({ title }) => title)).toEqual(["lr", "optimizer", "seed", "all but seed"]);
  expect(groupsOf(jobs, offered.at(-1)?.id ?? "").map(({ name, jobs: ids }) => [name, ids.join()])).toEqual([
    ["lr 0.01, optimizer adam", "adam1,adam2,adam3"],
    ["lr 0.1, optimizer sgd", "sgd1,sgd2,sgd3"],
  ]);
});

test("the options of a script are settings by their names, as sweeps name them", () => {
  const spec = (...args: string[]): unknown => ({ config: { args } });
  const found = specRows([
    spec("--lr", "0.10", "--opt=adam", "--amp", "-n", "-5", "data"),
    spec("--lr", "0.1", "--opt", "sgd"),
  ]);
  expect(found.map(({ path, values }) => [path, ...values])).toEqual([
    ["args.6", '"data"', null],
    ["args.amp", "true", null],
    ["args.lr", "0.1", "0.1"],
    ["args.n", "-5", null],
    ["args.opt", '"adam"', '"sgd"'],
  ]);
});
