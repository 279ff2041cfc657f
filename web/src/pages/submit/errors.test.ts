import { expect, test } from "vitest";
import { byField, keyOfWrong, shownAsWrong } from "./errors";

const KEYS = ["sweep.trials", "sweep.labels", "config.optimizer.lr", "config.args", "labels", "name"];

test("what the service calls a field of a sweep is that of its job, or a key that varies", () => {
  const of = (field: string): string => keyOfWrong({ field, message: "is wrong" }, KEYS, { isSweep: true });
  expect(of("job.config.optimizer.lr")).toBe("config.optimizer.lr");
  expect(of("parameters.config.optimizer.lr")).toBe("config.optimizer.lr");
  expect(of("parameters.config.optimizer.lr.1")).toBe("config.optimizer.lr");
  expect(of("trials")).toBe("sweep.trials");
  expect([of("labels.a b"), of("job.labels.a b")]).toEqual(["sweep.labels", "labels"]);
  const message = "parameters.config.optimizer.lr needs a step";
  expect(keyOfWrong({ field: "", message }, KEYS, { isSweep: true })).toBe("config.optimizer.lr");
});

test("an error within a list or a map is at its field, and one of no field stays what it is", () => {
  const of = (field: string): string => keyOfWrong({ field, message: "is wrong" }, KEYS, { isSweep: false });
  expect(of("config.args.3")).toBe("config.args");
  expect(of("labels.a.b")).toBe("labels");
  expect(of("")).toBe("");
  expect(of("nothing.there")).toBe("nothing.there");
});

test("the service's word stands in place of what was said at once", () => {
  const said = new Map([
    ["name", "at once"],
    ["labels", "too"],
  ]);
  const found = byField(said, [{ field: "name", message: "of the service" }], KEYS, { isSweep: false });
  expect([...found]).toEqual([
    ["name", "of the service"],
    ["labels", "too"],
  ]);
});

test("a group that the service misses is not said beside the field that is missing in it", () => {
  const said = new Map([["config.data.source", "is missing"]]);
  const found = byField(said, [{ field: "config.data", message: "is missing" }], KEYS, { isSweep: false });
  expect([...found.keys()]).toEqual(["config.data.source"]);
});

test("that a value is missing is shown where one has left the field without it", () => {
  const wrong = new Map([
    ["config.code", "is missing"],
    ["name", "is too long"],
  ]);
  expect([...shownAsWrong(wrong, new Set()).keys()]).toEqual(["name"]);
  expect([...shownAsWrong(wrong, new Set(["config.code"])).keys()]).toEqual(["config.code", "name"]);
});
