import { expect, test } from "vitest";
import { fieldsOf, leavesOf, sweepFieldsOf, trainersOf, type Field } from "../../specs/schema";
import { schemas } from "../../specs/testing";
import { commonOf, matching, partsOfSweep, sectionsOf } from "./sections";

const sweep = sweepFieldsOf(schemas.sweep);

function root(trainer: string): Field {
  const found = fieldsOf(schemas.job, trainer);
  if (found === null) throw new Error(`there is no trainer ${trainer}`);
  return found;
}

const keysOf = (fields: readonly Field[]): readonly string[] =>
  fields.flatMap(leavesOf).map((field) => field.key);

test.each(trainersOf(schemas.job))("each key of %s is in one place of the form, and is found", (trainer) => {
  const all = leavesOf(root(trainer));
  const shown = [...commonOf(root(trainer)), ...sectionsOf(root(trainer)).flatMap(({ fields }) => fields)];
  expect([...keysOf(shown)].sort()).toEqual(all.map(({ key }) => key).sort());
  for (const { key } of all) expect(keysOf(matching(root(trainer), key))).toContain(key);
});

test("what is found begins with the key of that name, and ends with those that speak of it", () => {
  const keys = keysOf(matching(root("image-classification"), "lr"));
  expect(keys[0]).toBe("config.optimizer.lr");
  expect(keys.indexOf("config.lr_scheduler.gamma")).toBeLessThan(keys.length - 1);
  expect(keysOf(matching(root("image-classification"), "Number Classes"))).toContain(
    "config.loss.class_weights",
  );
});

test("each key says what it is", () => {
  const all = [...trainersOf(schemas.job).map(root), sweep].flatMap(leavesOf);
  expect(all.filter((field) => field.help === "").map((field) => field.key)).toEqual([]);
});

test("each key of a sweep is shown for the methods that have it", () => {
  const keys = (method: string): readonly string[] => {
    const { common, others } = partsOfSweep(sweep, method);
    return keysOf([...common, ...others]);
  };
  const written = ["sweep.job", "sweep.parameters"]; // they are the form of the job, and the values of its keys
  const shown = ["grid", "random", "tpe", "asha", "list", "array"].flatMap(keys);
  expect([...new Set([...shown, ...written])].sort()).toEqual([...keysOf([sweep])].sort());
  expect(keys("grid")).not.toContain("sweep.trials");
  expect(keys("asha")).toEqual(
    expect.arrayContaining(["sweep.trials", "sweep.halving.factor", "sweep.seed"]),
  );
});
