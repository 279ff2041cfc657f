import { expect, test } from "vitest";
import { differences, withAutoTimeout } from "./differences";
import { jobOf, kindOf, lost, withMethod, withTrainer, withValue, withVaried } from "./document";
import { equal, put, type JsonObject } from "./json";
import { fieldAt, fieldsOf, leavesOf, trainersOf, type Field } from "./schema";
import { snippets } from "./snippets";
import { schema } from "./testing";
import { shown, typed, wrong } from "./values";
import { variedBy, variedText } from "./varying";

function root(trainer: string): Field {
  const found = fieldsOf(schema, trainer);
  if (found === null) throw new Error(`there is no trainer ${trainer}`);
  return found;
}

const field = (trainer: string, key: string): Field => fieldAt(root(trainer), key.split("."));

test("each trainer's fields have kinds, defaults, helps and units", () => {
  expect(trainersOf(schema).sort()).toEqual([
    "causal-lm",
    "image-classification",
    "script",
    "segmentation",
    "text-classification",
  ]);
  const images = "image-classification";
  expect(field(images, "config.training.epochs")).toMatchObject({
    kind: "number",
    fallback: 3,
    limits: { minimum: 1 },
  });
  expect(field(images, "config.training.compile")).toMatchObject({ kind: "choice", choices: [true, false] });
  expect(field(images, "config.training.channels_last").choices).toEqual([true, false, "auto"]);
  expect(field(images, "config.data.workers")).toMatchObject({ kind: "number", choices: ["auto"] });
  expect(field(images, "config.data.augment")).toMatchObject({ kind: "lines", choices: [] });
  expect(field(images, "config.data.augment").each).toContain("hflip");
  expect(field("causal-lm", "config.model.weights").isRequired).toBe(true);
  expect(field("causal-lm", "config.model.lora.targets")).toMatchObject({
    kind: "lines",
    choices: ["all-linear"],
    fallback: "all-linear",
  });
  expect(field(images, "config.data.normalize").kind).toBe("free");
  expect(field(images, "config.ema")).toMatchObject({ kind: "group", isNullable: true, fallback: null });
  expect(field(images, "labels").kind).toBe("map");
  expect(field(images, "env").kind).toBe("map");
  expect(field(images, "time_limit")).toMatchObject({ kind: "text", unit: "s, m, h, d" });
  expect(field(images, "resources.min_memory_gb").unit).toBe("GiB");
  expect(field("text-classification", "config.data.source").isRequired).toBe(true);
  expect(field("text-classification", "config.optimizer.lr").fallback).toBe(0.0005);
  expect(field("script", "config.args").kind).toBe("lines");
  for (const trainer of trainersOf(schema))
    expect(
      leavesOf(root(trainer)).filter((leaf) => leaf.kind === "choice" && leaf.choices.length === 0),
    ).toEqual([]);
});

test("what is typed is a value, and what is wrong with it is said at once", () => {
  const epochs = field("image-classification", "config.training.epochs");
  expect(typed(epochs, "5")).toBe(5);
  expect(typed(epochs, " ")).toBeUndefined();
  expect(typed(epochs, "many")).toBe("many");
  expect(wrong(epochs, 0)).toBe("must be at least 1");
  expect(wrong(epochs, 2.5)).toBe("must be a whole number");
  expect(wrong(epochs, "many")).toBe("must be a number");
  expect(wrong(epochs, undefined)).toBeNull();
  const lr = field("image-classification", "config.optimizer.lr");
  expect(typed(lr, "1e-3")).toBe(0.001);
  expect(wrong(lr, 0)).toBe("must be above 0");
  const workers = field("image-classification", "config.data.workers");
  expect([typed(workers, "auto"), typed(workers, "2")]).toEqual(["auto", 2]);
  const clip = field("text-classification", "config.optimizer.clip_grad_norm");
  expect(typed(clip, "null")).toBeNull();
  expect(wrong(clip, null)).toBeNull();
  const args = field("script", "config.args");
  expect(typed(args, "--lr\n0.1\n")).toEqual(["--lr", "0.1"]);
  expect(shown(args, ["--lr", "0.1"])).toBe("--lr\n0.1");
  expect(wrong(field("script", "config.code"), undefined)).toBe("is missing");
  const targets = field("causal-lm", "config.model.lora.targets");
  expect([typed(targets, "all-linear"), typed(targets, "q_proj\nv_proj"), typed(targets, "")]).toEqual([
    "all-linear",
    ["q_proj", "v_proj"],
    undefined,
  ]);
  expect([shown(targets, "all-linear"), shown(targets, ["q_proj", "v_proj"])]).toEqual([
    "all-linear",
    "q_proj\nv_proj",
  ]);
});

test("the values of a sweep are typed as on the command line", () => {
  const lr = field("image-classification", "config.optimizer.lr");
  const seed = field("image-classification", "config.training.seed");
  for (const [key, text, values] of [
    [lr, "0.1, 0.01", [0.1, 0.01]],
    [lr, "0.0001..0.1:log", { min: 0.0001, max: 0.1, log: true }],
    [lr, "0..0.5:step=0.1", { min: 0, max: 0.5, step: 0.1 }],
    [seed, "1..5", "1..5"],
    [field("causal-lm", "config.model.lora.rank"), "4, 8, 16", [4, 8, 16]],
    [seed, "1..9:step=2", { min: 1, max: 9, step: 2, integer: true }],
    [field("image-classification", "config.training.compile"), "true, false", [true, false]],
    [field("image-classification", "config.model.name"), "resnet18, vit_b_16", ["resnet18", "vit_b_16"]],
  ] as const) {
    expect(variedBy(key, text)).toEqual(values);
    expect(variedText(key, values)).toBe(text);
  }
  expect(variedBy(lr, "a..b")).toEqual(["a..b"]);
});

test("only what differs from the defaults is left of a resolved spec", () => {
  const images = root("image-classification");
  const config = fieldAt(images, ["config"]).fallback as JsonObject;
  const resolved: JsonObject = {
    trainer: "image-classification",
    name: "digits",
    stall_timeout: "10m",
    labels: {},
    config: {
      ...config,
      ema: { decay: 0.9999, ramp: 2000, device: "model" },
      training: { ...(config.training as JsonObject), epochs: 7 },
      distributed: { ...(config.distributed as JsonObject), timeout: "11m" },
    },
  };
  expect(differences(images, withAutoTimeout(resolved))).toEqual({
    trainer: "image-classification",
    name: "digits",
    config: { ema: {}, training: { epochs: 7 } },
  });
  expect(differences(images, { ...resolved, unheard_of: 1 })).toMatchObject({ unheard_of: 1 });
});

test("a value back at its default leaves no empty groups, and a group that is asked for stays", () => {
  const images = root("image-classification");
  const start: JsonObject = {
    trainer: "image-classification",
    config: { training: { epochs: 5 }, ema: { ramp: 1 } },
  };
  const without = withValue(start, images, ["config", "training", "epochs"], undefined);
  expect(without).toEqual({ trainer: "image-classification", config: { ema: { ramp: 1 } } });
  const asked = withValue(without, images, ["config", "ema", "ramp"], undefined);
  expect(asked).toEqual({ trainer: "image-classification", config: { ema: {} } });
  expect(withValue(asked, images, ["config", "ema"], undefined)).toEqual({ trainer: "image-classification" });
});

test("a key that varies makes a sweep of the job, and the last one that does not a job again", () => {
  const job: JsonObject = { trainer: "script", name: "mine", config: { args: [] } };
  const sweep = withVaried(job, "config.args.lr", [0.1]);
  expect(sweep).toEqual({
    name: "mine",
    parameters: { "config.args.lr": [0.1] },
    job: { trainer: "script", config: { args: [] } },
  });
  expect([kindOf(job), kindOf(sweep), kindOf({ ...job, schedule: "0 3 * * *" })]).toEqual([
    "job",
    "sweep",
    "schedule",
  ]);
  expect(withVaried(sweep, "config.args.lr", undefined)).toEqual(job);
  expect(withMethod(sweep, "asha")).toMatchObject({
    method: "asha",
    trials: 10,
    halving: { min: 1, max: 3 },
  });
  expect(withMethod(withMethod(sweep, "asha"), "grid")).toEqual(sweep);
  const list = withMethod(withVaried(sweep, "env.A", { min: 1, max: 2 }), "list");
  expect(list.points).toEqual([{ "config.args.lr": 0.1, "env.A": null }]);
  expect(list.parameters).toBeUndefined();
  expect(withMethod(list, "grid").parameters).toEqual({ "config.args.lr": [0.1], "env.A": [null] });
  expect(withMethod(sweep, "array")).not.toHaveProperty("parameters");
  expect(jobOf({ trainer: "script", job: { trainer: "x" } })).toMatchObject({ trainer: "script" });
});

test("another trainer takes what it has too, and what is its own", () => {
  const start: JsonObject = { trainer: "image-classification", labels: { team: "a" }, config: { ema: {} } };
  const all = { training: { epochs: 5 }, model: { name: "resnet18" }, loss: { mixup: 1 } };
  const own = { model: { name: "roberta_base" } };
  const text = root("text-classification");
  expect(withTrainer(start, text, "text-classification", { all, own })).toEqual({
    trainer: "text-classification",
    labels: { team: "a" },
    config: { training: { epochs: 5 }, model: { name: "roberta_base" } },
  });
  expect(lost({ a: { b: 1, c: 2 }, d: 3 }, { a: { c: 2 }, d: 4 })).toEqual({ a: { b: 1 }, d: 3 });
});

test("each pattern of the schema is an expression of JavaScript, too", () => {
  for (const pattern of JSON.stringify(schema).matchAll(/"pattern": ?("(?:[^"\\]|\\.)*")/g))
    expect(() => new RegExp(JSON.parse(pattern[1] ?? '""') as string, "u")).not.toThrow();
});

test("values are put and compared by their keys alone", () => {
  const made = put({}, ["a", "__proto__", "b"], 1);
  expect(({} as Record<string, unknown>).b).toBeUndefined();
  expect(JSON.stringify(made)).toBe('{"a":{"__proto__":{"b":1}}}');
  expect(equal({ a: 1, b: [1, { c: null }] }, { b: [1, { c: null }], a: 1 })).toBe(true);
  expect(equal({ a: 1 }, { a: 1, b: 2 })).toBe(false);
});

test("commands submit a sweep and a schedule where they belong", () => {
  const sweep = snippets(
    { name: "s", parameters: { lr: [1] }, job: { trainer: "script" } },
    "http://a",
    "sweep",
  );
  expect(sweep.cli).toMatch(/^torchyard sweep - <<'SPEC'\nname: s\n/);
  expect(sweep.curl).toContain("'http://a/v1/sweeps'");
  expect(sweep.python).toContain("client.sweeps.create(");
  expect(snippets({}, "http://a", "schedule").curl).toContain("/v1/schedules'");
});
