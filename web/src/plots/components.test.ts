import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { SweepView, TrialView } from "../api/wire";
import { route, setQuery } from "../router.svelte";
import { click, removeAll, serve, settled, show, textOf, textsOf } from "../testing";
import Plots from "./Plots.svelte";
import type { Named, PlotRow } from "./rows";
import { trialRows, trialVariables } from "./sweep";
import SweepPlots from "./SweepPlots.svelte";

const LOSS: Named = { key: "val/loss", title: "val/loss", isMetric: true, better: "min" };
const NAMED: readonly Named[] = [
  { key: "config.lr", title: "lr", isMetric: false, better: null },
  { key: "config.model", title: "model", isMetric: false, better: null },
  LOSS,
];
const ROWS: readonly PlotRow[] = Array.from({ length: 10 }, (_, i) => ({
  id: `job_${i}`,
  name: `run ${i}`,
  values: { "config.lr": i, "config.model": i % 2 ? "big" : "small", "val/loss": 10 - i },
}));

beforeEach(() => void vi.useFakeTimers());

afterEach(async () => {
  await removeAll();
  setQuery({ axes: null, brush: null, target: null, plot_x: null, plot_y: null });
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function plots(rows: readonly PlotRow[] = ROWS): HTMLElement {
  return show(Plots, { rows, named: NAMED, empty: "Nothing to plot." });
}

function axesOf(host: HTMLElement): readonly SVGElement[] {
  return [...host.querySelectorAll<SVGElement>("[role=slider]")];
}

function press(target: Element | undefined, key: string, changes: KeyboardEventInit = {}): void {
  target?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...changes }));
  flushSync();
}

test("settings and the target are axes, of which one is in the order of the keyboard", () => {
  const host = plots();
  expect(axesOf(host).map((axis) => axis.getAttribute("aria-label")?.split(":")[0])).toEqual([
    ...["lr", "model", "val/loss"],
  ]);
  expect(axesOf(host).map((axis) => axis.getAttribute("tabindex"))).toEqual(["0", "-1", "-1"]);
  expect(textOf(host.querySelector("strong"))).toBe("10 runs");
});

test("labels of the first axis stand outside, others beside their axis; a name that is too long is cut", () => {
  const host = plots(
    ROWS.map((row) => ({ ...row, values: { ...row.values, "config.lr": `rate ${row.id}` } })),
  );
  const labels = (at: number): readonly (string | null)[] =>
    [...(axesOf(host)[at]?.parentElement?.querySelectorAll(".tick") ?? [])].map((tick) =>
      tick.getAttribute("x"),
    );
  expect([new Set(labels(0)), new Set(labels(1))]).toEqual([new Set(["-8"]), new Set(["8"])]);
  expect(labels(0)).toHaveLength(10);
});

test("the first metric that enough runs have colours them, and those without a value are counted", () => {
  const named = [...NAMED.slice(0, 2), { ...LOSS, key: "rare" }, LOSS];
  const rows = ROWS.map(({ values, ...row }, i) => ({
    ...row,
    values: { ...values, "val/loss": i % 2 ? NaN : i, ...(i === 0 && { rare: 1 }) },
  }));
  const host = show(Plots, { rows, named, empty: "" });
  expect(host.querySelector("select")?.value).toBe("val/loss");
  expect(textOf(host.querySelector(".key"))).toBe("worstbest, 5 without a value are grey");
});

test("arrow keys keep a range of an axis, which the address holds once it rests; Escape keeps all again", () => {
  const host = plots();
  const [lr] = axesOf(host);
  press(lr, "ArrowUp");
  expect(textOf(host.querySelector("strong"))).toBe("5 of 10 runs");
  expect(lr?.getAttribute("aria-valuetext")).toBe("4.5 to 9; 5 of 10 runs");
  expect(route().query.get("brush")).toBeNull();
  vi.advanceTimersByTime(300);
  expect(route().query.get("brush")).toBe("config.lr:0.5~1");
  flushSync();
  expect(textOf(host.querySelector("strong"))).toBe("5 of 10 runs");
  press(axesOf(host)[0], "Escape");
  expect(textOf(host.querySelector("strong"))).toBe("10 runs");
});

test("arrows to the side go from axis to axis, and move one with Alt", () => {
  const host = plots();
  axesOf(host)[0]?.focus();
  press(axesOf(host)[0], "ArrowRight");
  expect(document.activeElement).toBe(axesOf(host)[1]);
  press(axesOf(host)[1], "ArrowLeft", { altKey: true });
  expect(route().query.get("axes")).toBe("config.model,config.lr,val/loss");
});

test("the table has the runs that are kept, the best first, each with its job", () => {
  setQuery({ brush: "config.lr:0~0.5" });
  const host = plots();
  click(host, "As a table");
  const table = host.querySelector("[aria-label='Runs as a table']") ?? host;
  expect(textsOf(table, "tbody tr").map((row) => row.slice(0, 5))).toEqual([
    ...["run 4", "run 3", "run 2", "run 1", "run 0"],
  ]);
  expect(table.querySelector("a")?.getAttribute("href")).toMatch(/jobs\/job_4$/);
  expect(textsOf(table, "thead th")).toEqual(["run", "lr", "model", "val/loss"]);
});

test("importance is ranked, and a setting of it is shown against the target", () => {
  const host = plots();
  const rows = textsOf(host, "[aria-label=Importance] tbody tr");
  expect(rows).toEqual(["lr−1.0010Spearman", "model0.0010correlation ratio"]);
  click(host.querySelector("[aria-label=Importance]") ?? host, "model");
  expect([route().query.get("plot_x"), route().query.get("plot_y")]).toEqual(["config.model", "val/loss"]);
});

test("axes and the target are chosen, and where there is nothing to plot it says why", () => {
  const host = plots();
  const boxes = [...host.querySelectorAll<HTMLInputElement>("details input")];
  boxes[1]?.click();
  flushSync();
  expect(route().query.get("axes")).toBe("config.lr,val/loss");
  expect(axesOf(host)).toHaveLength(2);
  const same = ROWS.map((row) => ({ ...row, values: { "config.lr": 1, "val/loss": 1 } }));
  expect(textOf(plots(same))).toBe("Nothing to plot.");
  expect(textOf(plots([]))).toBe("Nothing to plot.");
});

function sweep(changes: Record<string, unknown> = {}): SweepView {
  const parameters = { "config.optimizer.lr": { min: 0.001, max: 0.01, log: true }, "args.layers": [1, 2] };
  return {
    ...{ id: "swp_1", name: "lr", monitor: "val/iou", mode: "max", version: 1, spec: { parameters } },
    ...changes,
  } as unknown as SweepView;
}

function trial(number: number, changes: Record<string, unknown> = {}): TrialView {
  return {
    ...{ number, job_id: `job_${number}`, value: number / 10 },
    ...{ point: { "config.optimizer.lr": 0.001 * (number + 1), "args.layers": [number] } },
    ...changes,
  } as unknown as TrialView;
}

test("trials are runs: their points as settings with the scale of their range, their value as the metric", () => {
  const trials = [
    trial(1),
    trial(2, { value: "NaN" }),
    trial(3, { job_id: null }),
    trial(4, { value: null }),
  ];
  const rows = trialRows(sweep(), trials);
  expect(rows.map(({ id, name, values }) => [id, name, values["val/iou"]])).toEqual([
    ["job_1", "lr-1", 0.1],
    ["job_2", "lr-2", NaN],
    ["job_4", "lr-4", null],
  ]);
  expect(rows[0]?.values["args.layers"]).toBe("[1]");
  const named = trialVariables(sweep(), trials);
  expect(named.map(({ title, isLog, isMetric, better }) => [title, isLog, isMetric, better])).toEqual([
    ["lr", true, false, null],
    ["layers", undefined, false, null],
    ["val/iou", undefined, true, "max"],
  ]);
});

test("a sweep's plots read its trials, again when it changes, and lead to the comparison of what is kept", async () => {
  const asked = serve(() => ({ data: Array.from({ length: 60 }, (_, i) => trial(i)), has_more: false }));
  const host = show(SweepPlots, { sweep: sweep() });
  await vi.advanceTimersByTimeAsync(10);
  await settled();
  expect(asked.map(({ path, query }) => [path, query.get("limit")])).toEqual([
    ["v1/sweeps/swp_1/trials", "1000"],
  ]);
  const link = [...host.querySelectorAll("a")].find((item) => textOf(item).startsWith("Compare"));
  expect(textOf(link)).toBe("Compare the best 50 of these");
  const ids = new URL(link?.href ?? "", location.href).searchParams.get("jobs")?.split(",") ?? [];
  expect([ids.length, ids[0], ids.at(-1)]).toEqual([50, "job_59", "job_10"]);
});
