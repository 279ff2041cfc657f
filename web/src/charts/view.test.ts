// @vitest-environment node
import { expect, test } from "vitest";
import { colourOf } from "./colours";
import { logTicks, placeText, placeTicks, tickText } from "./labels";
import { queryOf, readView, toggled } from "./view";

const ids = Array.from({ length: 30 }, (_, i) => `job_0199${String(i).padStart(4, "0")}`);

test("a job keeps its colour, whoever is shown after it", () => {
  const first = ids.slice(0, 4).map((id) => colourOf(id, ids.slice(0, 4)));
  expect(ids.slice(0, 4).map((id) => colourOf(id, ids))).toEqual(first);
  expect(colourOf("job_b", ["job_b", "job_a"])).toEqual(colourOf("job_b", ["job_a", "job_b"]));
});

test("no two of ten jobs look alike, and eight are solid", () => {
  const found = ids.slice(0, 10).map((id) => colourOf(id, ids.slice(0, 10)));
  expect(new Set(found.map((colour) => JSON.stringify(colour))).size).toBe(10);
  expect(found.filter((colour) => colour.dash.length === 0)).toHaveLength(8);
});

test("no two of the fifty jobs that are compared look alike", () => {
  const all = Array.from({ length: 50 }, (_, i) => `job_0199${i}`);
  expect(new Set(all.map((id) => JSON.stringify(colourOf(id, all)))).size).toBe(50);
});

test("an address that says nonsense is read as the plain view", () => {
  const plain = readView(new URLSearchParams());
  for (const x of ["__proto__", "toString", "steps", ""])
    expect(readView(new URLSearchParams({ x }))).toEqual(plain);
  for (const zoom of ["5~Infinity", "NaN~1", "9~3", "5", "a~b", "~"])
    expect(readView(new URLSearchParams({ zoom }))).toEqual(plain);
  for (const smooth of ["abc", "Infinity"]) expect(readView(new URLSearchParams({ smooth }))).toEqual(plain);
});

test("what an address asks for by epoch is shown by step where no job has epochs", () => {
  const query = new URLSearchParams({ x: "epoch", zoom: "1~2" });
  expect(readView(query)).toMatchObject({ x: "epoch", zoom: { min: 1, max: 2 } });
  expect(readView(query, { hasEpochs: false })).toEqual(readView(new URLSearchParams()));
});

test("a view survives the address", () => {
  const view = {
    x: "trained" as const,
    smooth: 0.9,
    robust: true,
    ghost: true,
    log: ["train/loss", "a,b%2C"],
    wide: ["100%"],
    all: ["train/wild"],
    hide: ["job_1"],
    isRange: true,
    filter: "loss & more",
    paused: true,
    zoom: { min: 1710.5, max: 2000 },
  };
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(queryOf(view))) if (value !== null) query.set(key, value);
  expect(readView(new URLSearchParams(query.toString()))).toEqual(view);
});

test("a view as by default needs no query, and a broken query is one as by default", () => {
  const plain = readView(new URLSearchParams());
  expect(Object.values(queryOf(plain)).every((value) => value === null)).toBe(true);
  expect(readView(new URLSearchParams("x=mood&smooth=much&zoom=9~1"))).toEqual(plain);
  expect(readView(new URLSearchParams("smooth=7")).smooth).toBe(0.99);
});

test("toggling adds and takes away", () => {
  expect(toggled(toggled(["a"], "b"), "a")).toEqual(["b"]);
});

test("labels are short and plain", () => {
  expect([0, 0.25, 1.5e-5, 25_000, -3].map(tickText)).toEqual(["0", "0.25", "1.5e−5", "25k", "−3"]);
  expect(placeTicks("step", [0, 5000, 12_500], 2500)).toEqual(["0", "5k", "12.5k"]);
  expect(placeTicks("step", [0, 2500, 5000], 2500)).toEqual(["0", "2,500", "5,000"]);
  expect(placeTicks("trained", [0, 600, 5400], 600)).toEqual(["0s", "10m", "1h 30m"]);
  expect(placeText("step", 1710)).toBe("step 1,710");
});

test("a logarithmic axis has round places, however many decades it spans", () => {
  expect(logTicks(0.28, 30)).toEqual([0.5, 1, 2, 5, 10, 20]);
  expect(logTicks(1e-6, 2)).toEqual([1e-6, 1e-4, 1e-2, 1]);
  expect(logTicks(0.62, 0.95)).toEqual([0.7, 0.8, 0.9]);
});
