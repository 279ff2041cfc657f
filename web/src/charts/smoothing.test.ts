// @vitest-environment node
import { expect, test } from "vitest";
import { Columns } from "./columns";
import { isEnough, isMeasured, nextDoubling } from "./smoothing";
import { curve } from "./testing";

test("learning rates, epochs, steps and numbers of ranks are drawn as they are", () => {
  const plain = ["lr", "lr/group_1", "optim/lr", "train/learning_rate", "lr-Adam", "epoch", "train/epoch"];
  plain.push("step", "trainer/global_step", "wait/slowest_rank", "/devices/gpu");
  expect(plain.filter(isMeasured)).toEqual([]);
  const measured = ["train/loss", "time/step", "val/accuracy", "lrap", "wait/lag", "steps_per_second"];
  expect(measured.filter(isMeasured)).toEqual(measured);
});

test("few points are not smoothed, nor those of which the average would be the points themselves", () => {
  expect([isEnough(49, 0.9), isEnough(50, 0.9), isEnough(100, 0.6 ** (1000 / 64))]).toEqual([
    false,
    true,
    false,
  ]);
});

test("a curve has outgrown its average when its points have doubled since it was read", () => {
  expect([0, 10, 64, 100, 128].map(nextDoubling)).toEqual([64, 64, 128, 128, 256]);
  const columns = Columns.of(curve("loss", [1, 2, 3], { points: 126 }), 0.5);
  const grown = [127, 128].map((step) => (columns.append(step, step, 1, 1), columns.isOutgrown()));
  expect(grown).toEqual([false, true]);
  expect(Columns.of(curve("loss", [1, 2], { points: 500 }), 0).isOutgrown()).toBe(false);
});
