import { expect, test } from "vitest";
import { withMethod, withValue, withVaried } from "./document";
import { edited } from "./editing";
import { put, type Json, type JsonObject } from "./json";
import { read } from "./reading";
import { fieldsOf } from "./schema";
import { schema } from "./testing";

const TEXT = `# mine
trainer: image-classification # the recipe
name: "quoted"

config:
  # how long
  training:
    epochs: 5 # enough
    seed: 1
  optimizer: {lr: 0.5, "momentum": 0.9, } # keep this
  data:
    augment:
      - hflip # as in a mirror
      - vflip
    source: 'file:///a # b'
  ema: {}
  early_stopping: # nothing
labels:
  note: |
    two
    lines

after:
- job: first
  on: failed # or so
# the end
`;

test.each<[string, string[], Json | undefined, string, string]>([
  ["a number", ["config", "training", "epochs"], 7, "epochs: 5 #", "epochs: 7 #"],
  ["a text in quotes", ["name"], "night", 'name: "quoted"', "name: night"],
  ["a text that needs quotes", ["name"], "a: b", 'name: "quoted"', 'name: "a: b"'],
  ["a value in brackets", ["config", "optimizer", "lr"], 1e-3, "lr: 0.5", "lr: 0.001"],
  [
    "a list",
    ["config", "data", "augment"],
    ["vflip"],
    "augment:\n      - hflip # as in a mirror\n      - vflip\n",
    "augment: [vflip]\n",
  ],
  ["lines", ["labels", "note"], "one", "note: |\n    two\n    lines\n\n", "note: one\n"],
  ["nothing", ["config", "early_stopping"], false, "early_stopping: #", "early_stopping: false #"],
  [
    "nothing to an object",
    ["config", "early_stopping"],
    { patience: 3 },
    "early_stopping: # nothing\n",
    "early_stopping:\n    patience: 3\n",
  ],
  ["a new key", ["config", "training", "max_steps"], 9, "seed: 1\n", "seed: 1\n    max_steps: 9\n"],
  ["a new key in brackets", ["config", "optimizer", "nesterov"], true, "0.9, }", "0.9, nesterov: true, }"],
  ["a new key in empty brackets", ["config", "ema", "ramp"], 1, "ema: {}\n", "ema:\n    ramp: 1\n"],
  [
    "a new key of a list's object",
    ["after"],
    [{ job: "first" }],
    "after:\n- job: first\n  on: failed # or so\n",
    "after:\n  - job: first\n",
  ],
  ["a new group", ["resources", "nodes"], 2, "# or so\n", "# or so\nresources:\n  nodes: 2\n"],
  ["no key", ["config", "training", "seed"], undefined, "    seed: 1\n", ""],
  ["no key with a comment", ["config", "training", "epochs"], undefined, "    epochs: 5 # enough\n", ""],
  ["no first key in brackets", ["config", "optimizer", "lr"], undefined, 'lr: 0.5, "', '"'],
  ["no last key in brackets", ["config", "optimizer", "momentum"], undefined, ', "momentum": 0.9', ""],
  [
    "no group",
    ["config", "data"],
    undefined,
    "  data:\n    augment:\n      - hflip # as in a mirror\n      - vflip\n    source: 'file:///a # b'\n",
    "",
  ],
])("a change keeps all else as it was typed: %s", (_, path, value, before, after) => {
  const next = put(read(TEXT).document, path, value);
  expect(TEXT.split(before)).toHaveLength(2);
  expect(edited(TEXT, next)).toBe(TEXT.replace(before, after));
});

test("the last key of a group takes the group with it", () => {
  const root = fieldsOf(schema, "image-classification");
  const text = "trainer: image-classification\n# so long\nconfig:\n  training:\n    epochs: 5\nname: a # b\n";
  if (root === null) throw new Error("there is no such trainer");
  const next = withValue(read(text).document, root, ["config", "training", "epochs"], undefined);
  expect(edited(text, next)).toBe("trainer: image-classification\n# so long\nname: a # b\n");
});

test("a job becomes a sweep and a job again with its comments", () => {
  const job = '# head\n\ntrainer: script # mine\nconfig:\n  # code\n  code: file:///a\n  args: ["--a"]\n';
  const sweep = edited(job, withVaried(read(job).document, "args.lr", [0.1]));
  expect(sweep).toBe(
    '# head\n\nname: script\nparameters:\n  args.lr: [0.1]\njob:\n  trainer: script # mine\n  config:\n    # code\n    code: file:///a\n    args: ["--a"]\n',
  );
  expect(edited(sweep, withMethod(read(sweep).document, "tpe"))).toBe(
    sweep.replace("job:\n", "method: tpe\ntrials: 10\njob:\n"),
  );
  const again = edited(sweep, withVaried(read(sweep).document, "args.lr", undefined));
  expect(again).toBe(job.replace('args: ["--a"]\n', 'args: ["--a"]\nname: script\n'));
});

test("whatever is changed, the text says it, and keeps its comments", () => {
  let state = 11;
  const below = (most: number): number => (state = (state * 48271) % 2147483647) % most;
  const values: (Json | undefined)[] = [
    undefined,
    1,
    -2.5e-7,
    "a: #b",
    "",
    "- x",
    true,
    null,
    [],
    [1, "b"],
    [{ a: 1 }],
    {},
    { a: { b: [2] } },
  ];
  const keys = ["config", "training", "labels", "note", "optimizer", "after", "x", "a b", "on"];
  let [text, kept] = [TEXT, 0];
  for (let round = 0; round < 1_000; round++) {
    if (round % 10 === 0) text = TEXT;
    const path = Array.from({ length: below(3) + 1 }, () => keys[below(keys.length)] ?? "");
    const next: JsonObject = put(read(text).document, path, values[below(values.length)]);
    if (Object.keys(next).length === 0) continue;
    text = edited(text, next);
    expect(read(text).document).toEqual(next);
    if (text.includes("\n# the end\n")) kept++;
  }
  expect(kept).toBeGreaterThan(900);
});

test("a text that cannot be edited in place is written anew, with the comments before it", () => {
  expect(edited("# mine\nname: [", { name: "b" })).toBe("# mine\nname: b\n");
});
