import { expect, test } from "vitest";
import type { ColumnsView } from "../api/wire";
import { suggested } from "./suggested";

function column(name: string, jobs: number, differs = true): ColumnsView["data"][number] {
  return { name, jobs, differs };
}

test("metrics that most runs have are shown, that which they watch first, and what differs beside it", () => {
  const known: ColumnsView = {
    data: [
      column("metric:train/loss:last", 10),
      column("metric:val/iou:last", 9),
      column("metric:val/loss:last", 10),
      column("metric:rare:last", 5),
      column("config.optimizer.lr", 10),
      column("config.seed", 10, false),
      column("name", 10),
    ],
    jobs: 10,
  };
  expect(suggested(known, [], "train/loss")).toEqual([
    "metric:train/loss:min",
    "config.optimizer.lr",
    "metric:val/loss:min",
    "metric:val/iou:max",
  ]);
});

test("of a sweep its points are shown where they differ, in place of all options of its script", () => {
  const known: ColumnsView = {
    data: [column("config.args", 2), column("config.optimizer.lr", 2)],
    jobs: 2,
  };
  const jobs = [1, 2].map((seed) => ({
    sweep: {
      id: "swp_1",
      name: "s",
      trial: seed,
      point: { "args.seed": seed, "args.same": 1, "config.optimizer.lr": seed },
    },
  })) as unknown as Parameters<typeof suggested>[1];
  expect(suggested(known, jobs, null)).toEqual(["args.seed", "config.optimizer.lr"]);
  expect(suggested({ data: [], jobs: 0 }, [], null)).toEqual([]);
});
