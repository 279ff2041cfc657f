import { afterEach, beforeEach, expect, test } from "vitest";
import { route } from "../../router.svelte";
import { click, settled, textOf, textsOf } from "../../testing";
import { begin, end, service, FITS, JOB, open, yamlOf, field, type, checked } from "./testing";

beforeEach(begin);
afterEach(end);

test("a key is found by its name or its help, and Enter goes to it", async () => {
  const { host } = await open();
  type(field(host, "find-key"), "warmup_st");
  expect(textsOf(host, ".row label")).toEqual([
    "lr_scheduler.warmup_steps",
    "distributed.local_sgd.warmup_steps",
    "lr_scheduler.warmup_epochs", // whose help names them
  ]);
  field(host, "find-key").dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  expect(document.activeElement?.id).toBe("field-config.lr_scheduler.warmup_steps");
  type(field(host, "field-config.lr_scheduler.warmup_steps"), "5");
  expect(yamlOf(host).value).toContain("lr_scheduler:\n    warmup_steps: 5\n");
  type(field(host, "find-key"), "nothing like it");
  expect(textOf(host.querySelector(".fields [role=status]"))).toBe("No key of this trainer is like that.");
  type(field(host, "find-key"), "");
  expect(textsOf(host, ".row label")[0]).toBe("name");
});

test("the search of a sweep finds what the form has fields for, also around its job", async () => {
  const { host } = await open();
  type(yamlOf(host), "parameters: {config.optimizer.lr: [0.1]}\njob: {trainer: image-classification}\n");
  type(field(host, "find-key"), "parallel");
  expect(host.querySelector('[id="field-sweep.max_parallel"]')).not.toBeNull();
  for (const key of ["job", "parameters", "halving"]) {
    type(field(host, "find-key"), key);
    expect(host.querySelectorAll(`[id^="field-sweep.${key}"]`)).toHaveLength(0);
  }
  type(field(host, "find-key"), "e");
  const [found = 0, all = 0] = textOf(host.querySelector("[role=status]")).split(" of ").map(parseFloat);
  expect(found).toBeLessThanOrEqual(all);
});

test("a value that varies makes a sweep", async () => {
  service.answer = (asked) => (asked.path === "v1/sweeps" ? { id: "swp_1" } : { spec: {}, points: 2 });
  const { host, asked } = await open();
  const row = field(host, "field-config.optimizer.lr").closest<HTMLElement>(".row");
  if (row) click(row, "vary");
  await settled();
  const values = field(host, "field-config.optimizer.lr") as HTMLInputElement;
  expect([document.activeElement, values.selectionStart, values.selectionEnd]).toEqual([
    ...[values, 0, values.value.length], // typing replaces what it had
  ]);
  type(values, "0.1, 0.01");
  await checked();
  expect(textOf(host.querySelector("footer"))).toBe("2 trials Submit the sweep");
  click(host, "Submit the sweep");
  await settled();
  expect(asked.find(({ path }) => path === "v1/sweeps")?.body).toEqual({
    name: "image-classification",
    parameters: { "config.optimizer.lr": [0.1, 0.01] },
    job: { trainer: "image-classification" },
  });
  expect(route().page).toBe("sweep");
});

test("an argument of a script varies, too", async () => {
  service.answer = () => ({ spec: {}, points: 2 });
  const { host } = await open();
  type(yamlOf(host), "trainer: script\nconfig: {code: 'file:///a'}\n");
  const added = host.querySelector<HTMLInputElement>('[placeholder="args.lr"]');
  if (added) type(added, "args.lr");
  click(host, "Vary an argument");
  type(field(host, "field-args.lr"), "0.1, 0.01");
  expect(yamlOf(host).value).toContain("parameters:\n  args.lr: [0.1, 0.01]\njob:\n  trainer: script\n");
  click(host, "remove");
  expect(yamlOf(host).value).toMatch(/^trainer: script\n/);
});

test("weights are chosen among models and checkpoints of jobs", async () => {
  service.answer = ({ path }) => {
    if (path === "v1/models")
      return {
        data: [
          {
            owner: "ada",
            name: "digits",
            newest: { version: 3, trainer: "script", created_at: "2026-01-01" },
          },
        ],
      };
    if (path === "v1/jobs")
      return { data: [{ id: JOB, name: "old", owner: "ada", state: "succeeded", created_at: "2026-01-01" }] };
    if (path === `v1/jobs/${JOB}/checkpoints`)
      return { data: [{ id: "ckpt_1", step: 40, epoch: 2, aliases: ["epoch-2", "best"], metrics: {} }] };
    return FITS;
  };
  const { host } = await open();
  click(host, "Choose…");
  await settled();
  host.querySelectorAll<HTMLElement>(".panel li button")[0]?.click();
  await settled();
  expect(yamlOf(host).value).toContain("init_from: model:ada/digits@3");
  click(host, "Choose…");
  await settled();
  host.querySelectorAll<HTMLElement>(".panel li button")[1]?.click();
  await settled();
  host.querySelectorAll<HTMLElement>(".panel li button")[0]?.click();
  await settled();
  expect(yamlOf(host).value).toContain(`init_from: ${JOB}/best`);
});
