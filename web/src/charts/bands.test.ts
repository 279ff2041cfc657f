// @vitest-environment node
import { expect, test } from "vitest";
import { Place } from "./axis";
import { BandLine, joined } from "./bands";
import { Columns } from "./columns";
import { hasBands, Line, type LineGroup } from "./line";
import { csvOf } from "./table";
import { bandNote } from "./words";

const SOLID = { slot: 1, dash: [] };
const STD = { smooth: false, isRange: false };

/** A job's curve of points `[step, value]`. */
function line(
  id: string,
  points: readonly (readonly [number, number])[],
  ema: readonly number[] | null = null,
  key = "loss",
): Line {
  const step = points.map(([at]) => at);
  const mean = points.map(([, value]) => value);
  const rest = { attempt: step.map(() => 1), min: null, max: null, ema: ema && [...ema], nonfinite: null };
  const columns = Columns.of(
    { points: points.length, columns: { step, time: step, mean, ...rest } },
    ema ? 0.9 : 0,
  );
  const place = new Place("step", []);
  return new Line({ jobId: id, job: id, key, part: null, name: id, colour: SOLID, columns, place });
}

function group(id: string, ...jobs: readonly string[]): LineGroup {
  return { id, name: id, colour: { slot: 2, dash: [] }, jobs };
}

function rows(found: Line | undefined): readonly (readonly number[])[] {
  if (!found) throw new Error("no line");
  const { columns } = found;
  return Array.from({ length: columns.length }, (_, i) =>
    [found.x(i), columns.mean[i], columns.min[i], columns.max[i], columns.weight[i]].map((value) =>
      Number((value ?? NaN).toFixed(4)),
    ),
  );
}

test("a group is its mean with one standard deviation to both sides, as counted by hand", () => {
  const lines = [
    line("a", [
      [1, 1],
      [2, 2],
    ]),
    line("b", [
      [1, 3],
      [2, 2],
    ]),
    line("c", [
      [1, 5],
      [2, 2],
    ]),
  ];
  const [band] = joined(lines, [group("g", "a", "b", "c")], STD);
  expect(rows(band)).toEqual([
    [1, 3, 1, 5, 3],
    [2, 2, 2, 2, 3],
  ]);
  expect([band?.jobId, band?.colour.slot, band?.isBand]).toEqual(["g", 2, true]);
});

test("steps of one job fall on the straight line between the points of the other", () => {
  const lines = [
    line("a", [
      [0, 0],
      [10, 10],
    ]),
    line("b", [
      [0, 0],
      [4, 8],
      [10, 20],
    ]),
  ];
  const [band] = joined(lines, [group("g", "a", "b")], { ...STD, isRange: true });
  expect(rows(band)).toEqual([
    [0, 0, 0, 0, 2],
    [4, 6, 4, 8, 2],
    [10, 15, 10, 20, 2],
  ]);
});

test("jobs with unequal steps have the mean and the deviation that numpy computes of their straight lines", () => {
  // numpy.interp at all steps, numpy.mean and numpy.std(…, ddof=1)
  const lines = [
    line("a", [
      [0, 2],
      [3, 1.4],
      [10, 0.6],
    ]),
    line("b", [
      [1, 2.6],
      [4, 1.1],
      [7, 0.9],
      [12, 0.2],
    ]),
    line("c", [
      [0, 1.7],
      [5, 1],
      [9, 0.8],
    ]),
  ];
  expect(rows(joined(lines, [group("g", "a", "b", "c")], STD)[0])).toEqual([
    [0, 1.85, 1.6379, 2.0621, 2],
    [1, 1.9867, 1.4421, 2.5312, 3],
    [3, 1.4267, 1.265, 1.5883, 3],
    [4, 1.1752, 1.0775, 1.273, 3],
    [5, 1.0683, 0.9774, 1.1591, 3],
    [7, 0.9143, 0.8895, 0.939, 3],
    [9, 0.7114, 0.6214, 0.8015, 3],
    [10, 0.54, 0.4551, 0.6249, 2],
  ]);
});

test("there is a row only where two jobs or more have points, and it counts them", () => {
  const lines = [
    line("a", [
      [1, 1],
      [2, 1],
      [3, 1],
    ]),
    line("b", [
      [2, 3],
      [3, 3],
      [4, 3],
    ]),
    line("c", [
      [3, 5],
      [9, 5],
    ]),
  ];
  const [band] = joined(lines, [group("g", "a", "b", "c")], STD);
  expect(rows(band).map(([x, mean, , , count]) => [x, mean, count])).toEqual([
    [2, 2, 2],
    [3, 3, 3],
    [4, 4, 2],
  ]);
});

test("a group whose jobs ran one after the other has no line by the clock, and says so", () => {
  const lines = [
    line("a", [
      [1, 1],
      [2, 1],
    ]),
    line("b", [
      [3, 3],
      [4, 3],
    ]),
  ];
  const bands = joined(lines, [group("g", "a", "b")], STD);
  expect(rows(bands[0])).toEqual([]);
  expect(bandNote(bands, false)).toContain("No two jobs of a group have points at one x value");
});

test("values that are not finite are passed over", () => {
  const lines = [
    line("a", [
      [1, 1],
      [2, NaN],
      [3, 3],
    ]),
    line("b", [
      [1, 1],
      [2, 2],
      [3, 3],
    ]),
  ];
  expect(rows(joined(lines, [group("g", "a", "b")], STD)[0]).map(([x, mean]) => [x, mean])).toEqual([
    [1, 1],
    [2, 2],
    [3, 3],
  ]);
});

test("the spread is that of what is drawn: of the moving averages where lines are smoothed", () => {
  const steps = Array.from({ length: 50 }, (_, i) => i + 1);
  const noisy = (sign: number): (readonly [number, number])[] =>
    steps.map((at) => [at, sign * (at % 2 ? 9 : -9)]);
  const lines = [
    line(
      "a",
      noisy(1),
      steps.map(() => 1),
    ),
    line(
      "b",
      noisy(-1),
      steps.map(() => 3),
    ),
  ];
  const [band] = joined(lines, [group("g", "a", "b")], { smooth: true, isRange: true });
  expect([band?.columns.min[7], band?.columns.max[7], band?.shown(true)[7]]).toEqual([1, 3, 2]);
});

test("a group of one job is that job's line, and jobs of no group are not drawn", () => {
  const lines = [line("a", [[1, 1]]), line("b", [[1, 2]])];
  const found = joined(lines, [group("g", "a"), group("empty", "z")], STD);
  expect(found.map(({ jobId, isBand, columns }) => [jobId, isBand, columns])).toEqual([
    ["g", false, lines[0]?.columns],
  ]);
});

test("training and validation of a group are a band each", () => {
  const columns = line("a", [
    [1, 1],
    [2, 2],
  ]).columns;
  const lines = ["train", "val"].flatMap((part) =>
    ["a", "b"].map(
      (id) =>
        new Line({
          ...{ jobId: id, job: id, key: `${part}/loss`, part, name: `${id} · ${part}` },
          ...{ colour: SOLID, columns, place: new Place("step", []) },
        }),
    ),
  );
  const found = joined(lines, [group("g", "a", "b")], STD);
  expect(found.map(({ id, name, colour }) => [id, name, colour.isPale ?? false])).toEqual([
    ["g train/loss", "g · train", true],
    ["g val/loss", "g · val", false],
  ]);
});

test("long curves of many jobs make at most a thousand rows, from the first step to the last", () => {
  const lines = Array.from({ length: 5 }, (_, job) =>
    line(
      String(job),
      Array.from({ length: 900 }, (_, i) => [i * 5 + job, 1] as const),
    ),
  );
  const [band] = joined(lines, [group("g", "0", "1", "2", "3", "4")], STD);
  const found = rows(band);
  expect(found.length).toBeLessThanOrEqual(1000);
  expect(found.at(0)?.[0]).toBeLessThan(10);
  expect(found.at(-1)?.[0]).toBeGreaterThan(4480);
});

test("bands are drawn of any number of groups; their CSV has the jobs' own points", () => {
  const lines = "abcdef".split("").map((id) =>
    line(id, [
      [1, 1],
      [2, 2],
    ]),
  );
  expect(hasBands(lines)).toBe(false);
  const bands = joined(lines, [group("g", "a", "b"), group("h", "c", "d", "e")], STD);
  expect(hasBands([...bands, ...bands, ...bands])).toBe(true);
  expect(bandNote(bands, false)).toBe("mean ± standard deviation of 2 to 3 jobs");
  expect(csvOf(bands).match(/^[a-e],/gm)).toHaveLength(10);
  expect(bands.every((band) => band instanceof BandLine)).toBe(true);
});

test("the band of a learning rate is its range: a standard deviation would go below all of them", () => {
  const lines = [0.001, 0.001, 0.1].map((lr, i) =>
    line(
      `job ${i}`,
      [
        [1, lr],
        [2, lr / 2],
      ],
      null,
      "lr",
    ),
  );
  const bands = joined(lines, [group("g", ...lines.map(({ jobId }) => jobId))], STD);
  expect(rows(bands[0]).map(([, , least, greatest]) => [least, greatest])).toEqual([
    [0.001, 0.1],
    [0.0005, 0.05],
  ]);
  expect(bandNote(bands, false)).toContain("mean and range");
});
