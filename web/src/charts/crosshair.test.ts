// @vitest-environment node
import { expect, test } from "vitest";
import { Attempts } from "./attempts";
import { Columns } from "./columns";
import { pointsAt } from "./crosshair";
import { Line } from "./line";
import { curve } from "./testing";

function line(id: string, values: readonly number[], first: number): Line {
  const columns = Columns.of(curve("loss", values, { first }), 0);
  const place = new Attempts().place(id, "step", 0);
  return new Line({
    jobId: id,
    job: id,
    name: id,
    key: "loss",
    part: null,
    colour: { slot: 1, dash: [] },
    columns,
    place,
  });
}

test("the crosshair has the nearest point of each line, and none of a line that lies elsewhere", () => {
  const lines = [line("near", [5, 6, 7], 10), line("far", [1, 2], 500)];
  expect(pointsAt(lines, 11.2, false)).toMatchObject([
    { id: "near loss", x: 11, step: 11, value: 6, shown: 6 },
  ]);
});

test("few points are shown as they are, though the view is smoothed", () => {
  expect(pointsAt([line("few", [5, 9], 1)], 2, true)).toMatchObject([{ value: 9, shown: 9 }]);
});
