import { expect, test } from "vitest";
import { byField, keyOfWrong } from "./errors";

const KEYS = ["config.optimizer.lr", "config.args", "labels", "name"];

test("what the service calls a field of a sweep is that of its job, or a key that varies", () => {
  const of = (field: string): string => keyOfWrong(field, KEYS, { isSweep: true });
  expect(of("job.config.optimizer.lr")).toBe("config.optimizer.lr");
  expect(of("parameters.config.optimizer.lr")).toBe("config.optimizer.lr");
  expect(of("parameters.config.optimizer.lr.1")).toBe("config.optimizer.lr");
  expect(of("trials")).toBe("trials");
});

test("an error within a list or a map is at its field, and one of no field stays what it is", () => {
  const of = (field: string): string => keyOfWrong(field, KEYS, { isSweep: false });
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
