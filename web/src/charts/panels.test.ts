// @vitest-environment node
import { expect, test } from "vitest";
import { monitorOf } from "./attempts";
import { layoutQuery, PLAIN, readLayout } from "./layout";
import { moved, sectionsOf, toggledPanel, type Section } from "./panels";

const KEYS = [
  "memory_gib/rank0",
  "time/step",
  "lr",
  "val/iou",
  "val/loss",
  "train/loss",
  "wait/lag",
  "gan/d",
  "val/accuracy",
];

function shown(sections: readonly Section[]): readonly (readonly string[])[] {
  return sections.map(({ title, panels }) => [title, ...panels.map(({ keys }) => keys.join(" + "))]);
}

test("one name of training and validation is one chart; times and memory come last", () => {
  expect(shown(sectionsOf(KEYS, PLAIN))).toEqual([
    ["train · val", "train/loss + val/loss", "val/accuracy", "val/iou"],
    ["gan", "gan/d"],
    ["other", "lr"],
    ["time", "time/step"],
    ["wait", "wait/lag"],
    ["memory_gib", "memory_gib/rank0"],
  ]);
});

test("a filter shows the charts that have a key with its text, with all of their curves", () => {
  expect(shown(sectionsOf(KEYS, PLAIN, { filter: " VAL/LO" }))).toEqual([
    ["train · val", "train/loss + val/loss"],
  ]);
});

test("a name that was split is a chart for each key, and keeps its place", () => {
  const [first] = sectionsOf(KEYS, { ...PLAIN, split: ["val/loss"] }, { monitor: null });
  expect(first?.panels.map(({ prefix, name, canSplit }) => [prefix + name, canSplit])).toEqual([
    ["val/loss", true],
    ["train/loss", true],
    ["val/accuracy", false],
    ["val/iou", false],
  ]);
});

test("what is monitored comes first, and what is pinned after it", () => {
  const layout = { ...PLAIN, pinned: ["lr", "gone"] };
  expect(shown(sectionsOf(KEYS, layout, { monitor: "val/loss" })).slice(0, 2)).toEqual([
    ["Monitored metric · Pinned", "train/loss + val/loss", "lr"],
    ["val", "val/accuracy", "val/iou"],
  ]);
  expect(
    sectionsOf(KEYS, { ...PLAIN, split: ["val/loss"] }, { monitor: "val/loss" })[0]?.panels,
  ).toMatchObject([{ keys: ["val/loss"] }]);
  expect(shown(sectionsOf(KEYS, PLAIN, { monitor: "val/none" }))[0]?.[0]).toBe("train · val");
});

test("before the first evaluation the chart of the monitored metric has the training's curve, and stays the same", () => {
  const [before, after] = [["train/loss"], ["train/loss", "val/loss"]].map(
    (keys) => sectionsOf(keys, PLAIN, { monitor: "val/loss" })[0]?.panels[0],
  );
  expect([before?.id, before?.isMonitored]).toEqual([after?.id, true]);
  expect([before, after].map((panel) => (panel?.prefix ?? "") + (panel?.name ?? ""))).toEqual([
    "train/loss",
    "loss",
  ]);
});

test("numbers in keys count as numbers", () => {
  const keys = ["layers/10/norm", "layers/2/norm", "layers/1/norm"];
  expect(sectionsOf(keys, PLAIN)[0]?.panels.map(({ name }) => name)).toEqual(["1/norm", "2/norm", "10/norm"]);
});

test("sections come in the order in which they were put, and new ones after them", () => {
  const more = [{ id: "/devices", title: "devices", panels: [] }];
  const order = ["time", "/devices", "train"];
  expect(sectionsOf(KEYS, { ...PLAIN, order }, { more }).map(({ title }) => title)).toEqual([
    ...["time", "devices", "train · val", "gan", "other", "wait", "memory_gib"],
  ]);
  expect([
    moved(["a", "b", "c"], "c", -1),
    moved(["a", "b", "c"], "a", 9),
    moved(["a", "b"], "a", -1),
  ]).toEqual([
    ["a", "c", "b"],
    ["b", "c", "a"],
    ["a", "b"],
  ]);
});

test("a chart is named by any of its keys, so that what was said of it holds when more of them come", () => {
  const panel = { keys: ["train/loss", "val/loss"] };
  expect(toggledPanel(["lr"], panel)).toEqual(["lr", "train/loss"]);
  expect(toggledPanel(["val/loss", "lr"], panel)).toEqual(["lr"]);
});

test("the arrangement is that of the address, and for what it does not name as kept", () => {
  const kept = { ...PLAIN, folded: ["time"], pinned: ["lr", 7 as unknown as string] };
  const query = new URLSearchParams("folded=wait,time&split=train/loss");
  expect(readLayout(query, kept)).toEqual({
    ...{ order: [], folded: ["wait", "time"], pinned: ["lr"], split: ["train/loss"] },
  });
  expect(layoutQuery({ folded: [], order: ["a", "b"] })).toEqual({ folded: null, sections: "a,b" });
});

test("what most of the jobs monitor is what a comparison shows first", () => {
  const job = (monitor: string | null): Parameters<typeof monitorOf>[0][number] => ({
    ...{ id: "", name: "", perEpoch: null, attempts: [], monitor },
  });
  expect(monitorOf([job("a"), job("b"), job(null), job("b")])).toBe("b");
  expect(monitorOf([job(null)])).toBeNull();
});
