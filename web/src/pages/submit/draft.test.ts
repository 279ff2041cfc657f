import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { fieldAt, type Field } from "../../specs/schema";
import { schemas } from "../../specs/testing";
import { Draft } from "./draft.svelte";

const BEGUN =
  "# mine\ntrainer: image-classification # the recipe\nconfig:\n  training:\n    epochs: 5 # enough\n";

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

function field(draft: Draft, key: string): Field {
  if (draft.root === null) throw new Error("the draft has no trainer");
  return fieldAt(draft.root, key.split("."));
}

/** Waits for so long that the next change is one of its own. */
function rest(): void {
  vi.advanceTimersByTime(2_000);
}

test("changes in the form and in the YAML are taken back in turn, and made again", () => {
  const draft = new Draft(schemas, BEGUN);
  const texts = [draft.text];
  const changes = [
    () => draft.set(field(draft, "config.training.epochs"), 7),
    () => draft.type(`${draft.text}name: a\n`),
    () => draft.vary(field(draft, "config.optimizer.lr"), [0.1, 0.2]),
    () => draft.setTrainer("text-classification"),
    () => draft.type("name: ["),
  ];
  for (const change of changes) {
    change();
    rest();
    texts.push(draft.text);
  }
  expect(new Set(texts).size).toBe(6);
  for (const text of texts.slice(0, -1).reverse()) {
    draft.undo();
    expect(draft.text).toBe(text);
  }
  expect([draft.fault, draft.kind]).toEqual([null, "job"]);
  draft.undo();
  expect(draft.text).toBe(BEGUN);
  for (const text of texts.slice(1)) {
    draft.redo();
    expect(draft.text).toBe(text);
  }
  expect(draft.fault).not.toBeNull();
});

test("what is typed in one place without a rest is taken back together", () => {
  const draft = new Draft(schemas, BEGUN);
  for (const name of ["n", "ni", "nig"]) draft.set(field(draft, "name"), name);
  draft.set(field(draft, "priority"), 1);
  draft.set(field(draft, "priority"), 1); // nothing changes
  draft.undo();
  expect(draft.job.name).toBe("nig");
  draft.undo();
  expect(draft.text).toBe(BEGUN);
  draft.set(field(draft, "priority"), 2);
  draft.redo();
  expect(draft.job.priority).toBe(2);
});

test("another trainer takes what fits it, and what does not is there again with the first", () => {
  const draft = new Draft(
    schemas,
    `${BEGUN}  model: {name: resnet18}\n  data:\n    image_size: 64 # pixels\n  ema: {}\nlabels: {team: a}\n`,
  );
  draft.setTrainer("text-classification");
  expect(draft.job).toEqual({
    trainer: "text-classification",
    config: { training: { epochs: 5 }, ema: {} },
    labels: { team: "a" },
  });
  expect(draft.text).toContain("epochs: 5 # enough");
  draft.set(field(draft, "config.training.epochs"), 7);
  draft.set(field(draft, "config.model"), { name: "roberta_base", dropout: 0.5, weights: "none" });
  draft.setTrainer("script");
  expect(draft.job.config).toBeUndefined();
  draft.setTrainer("image-classification");
  expect(draft.job.config).toEqual({
    ...{ training: { epochs: 7 }, ema: {}, model: { name: "resnet18", weights: "none" } },
    data: { image_size: 64 },
  });
  draft.set(field(draft, "config.ema"), undefined);
  draft.setTrainer("text-classification");
  expect(draft.job.config).not.toHaveProperty("ema");
  expect(draft.job.config).toMatchObject({ training: { epochs: 7 }, model: { dropout: 0.5 } });
});

test("a mark of bytes at the beginning is no part of the text", () => {
  expect(new Draft(schemas, "\ufefftrainer: script\n").text).toBe("trainer: script\n");
});
