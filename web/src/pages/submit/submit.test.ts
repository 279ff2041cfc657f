import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { href, navigate, route } from "../../router.svelte";
import { schemas } from "../../specs/testing";
import { click, removeAll, serve, settled, show, signIn, textOf, textsOf, type Asked } from "../../testing";
import { forget } from "./kept";
import Submit from "./Submit.svelte";

const JOB = "job_0197f3c2a9b47c1e8d20f6b1c4e5a703";
const FITS = { spec: {}, waits_for: { fits: true, code: null, message: null, position: 1 } };

let answer: (asked: Asked) => unknown = () => FITS;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  vi.stubGlobal("scrollTo", () => undefined);
  signIn("member", "jobs:read", "jobs:write", "secrets");
  answer = (asked) => (asked.path === "v1/jobs/validate" ? FITS : null);
  navigate(href("submit"));
});

afterEach(async () => {
  for (const origin of ["", JOB]) forget(origin);
  await removeAll();
  vi.useRealTimers();
  vi.unstubAllGlobals();
  navigate(href(""));
});

async function open(): Promise<{ host: HTMLElement; asked: readonly Asked[] }> {
  const asked = serve((each) => {
    if (each.path === "v1/spec/schema") return each.query.get("of") === "sweep" ? schemas.sweep : schemas.job;
    if (each.path === "v1/secrets") return { data: [{ name: "HF" }] };
    if (each.path === "v1/bundles") return { data: [] };
    return answer(each);
  });
  const host = show(Submit, {});
  await settled();
  return { host, asked };
}

function yamlOf(host: HTMLElement): HTMLTextAreaElement {
  return field<HTMLTextAreaElement>(host, "yaml");
}

function field<T extends HTMLElement = HTMLInputElement>(host: HTMLElement, id: string): T {
  const found = host.querySelector<T>(`[id="${id}"]`);
  if (!found) throw new Error(`there is no ${id}`);
  return found;
}

function type(into: HTMLInputElement | HTMLTextAreaElement, text: string): void {
  into.value = text;
  into.dispatchEvent(new Event("input", { bubbles: true }));
  flushSync();
}

function unfold(host: HTMLElement, section: string): void {
  host.querySelectorAll("summary").forEach((summary) => {
    if (textOf(summary).startsWith(section)) summary.parentElement?.setAttribute("open", "");
    summary.parentElement?.dispatchEvent(new Event("toggle"));
  });
  flushSync();
}

async function checked(): Promise<void> {
  await vi.advanceTimersByTimeAsync(300);
  await settled();
}

async function pressCtrlEnter(): Promise<void> {
  window.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", ctrlKey: true }));
  await settled();
}

test("the form writes the YAML, and the YAML the form", async () => {
  const { host } = await open();
  expect(yamlOf(host).value).toBe("trainer: image-classification\n");
  const epochs = field(host, "field-config.training.epochs");
  expect(epochs.placeholder).toBe("3");
  type(epochs, "7");
  expect(yamlOf(host).value).toBe("trainer: image-classification\nconfig:\n  training:\n    epochs: 7\n");
  type(epochs, "3");
  expect(yamlOf(host).value).toBe("trainer: image-classification\n"); // the default is not written
  type(yamlOf(host), "# mine\ntrainer: image-classification\nconfig: {optimizer: {lr: 0.5}} # keep this\n");
  expect(field(host, "field-config.optimizer.lr").value).toBe("0.5");
  type(field(host, "field-config.optimizer.lr"), "0.25");
  expect(yamlOf(host).value).toContain("config: {optimizer: {lr: 0.25}} # keep this");
  type(field(host, "field-name"), "night");
  expect(yamlOf(host).value).toMatch(/^# mine\ntrainer: image-classification\n/);
  expect(yamlOf(host).value).toContain("name: night");
});

test("a language model asks for its base and its data first, and its targets are a word or a list", async () => {
  const { host } = await open();
  type(yamlOf(host), "trainer: causal-lm\n");
  const names = textsOf(host, ".common label");
  expect(names.slice(0, 4)).toEqual(["name", "model.weights", "data.source", "method"]);
  unfold(host, "model");
  const targets = field<HTMLTextAreaElement>(host, "field-config.model.lora.targets");
  expect(targets.placeholder).toBe("all-linear");
  type(targets, "q_proj\nv_proj");
  expect(yamlOf(host).value).toContain("targets: [q_proj, v_proj]");
  type(targets, "all-linear"); // the default is not written
  expect(yamlOf(host).value).toBe("trainer: causal-lm\n");
});

test("a fault in the YAML keeps the form as it was, and says its line", async () => {
  const { host } = await open();
  type(yamlOf(host), "trainer: image-classification\nname: one\n");
  type(yamlOf(host), "trainer: image-classification\nname: [two\n");
  expect(field(host, "field-name").value).toBe("one");
  expect(field<HTMLFieldSetElement>(host, "field-name").closest("fieldset")?.disabled).toBe(true);
  expect(textOf(host.querySelector("#yaml-fault"))).toMatch(/^Line \d has|^Line \d/);
  expect(textsOf(host, ".gutter .wrong")).toHaveLength(1);
  await pressCtrlEnter();
  expect(document.activeElement).toBe(yamlOf(host));
});

test("a wrong value is said at its field and its line at once, and is not sent", async () => {
  const { host, asked } = await open();
  type(field(host, "field-config.training.epochs"), "0");
  expect(textOf(field(host, "help-config.training.epochs"))).toContain("must be at least 1.");
  expect(textsOf(host, ".gutter .wrong")).toEqual(["4"]);
  await pressCtrlEnter();
  expect(document.activeElement?.id).toBe("field-config.training.epochs");
  expect(asked.filter(({ path, method }) => path === "v1/jobs" && method === "POST")).toEqual([]);
});

test("what the service finds wrong is shown at the field, in its section", async () => {
  answer = (asked) => {
    if (asked.path !== "v1/jobs/validate") return null;
    return FITS;
  };
  const { host } = await open();
  vi.stubGlobal("fetch", () =>
    Promise.resolve(
      new Response(
        JSON.stringify({
          code: "invalid_spec",
          detail: "the job spec is not valid",
          errors: [{ field: "checkpoint.monitor", message: "must be one of val/loss" }],
        }),
        { status: 422 },
      ),
    ),
  );
  type(yamlOf(host), "trainer: image-classification\ncheckpoint: {monitor: val/iou}\n");
  await checked();
  expect(textOf(host.querySelector("footer"))).toContain("checkpoint.monitor must be one of val/loss");
  expect(textsOf(host, ".gutter .wrong")).toEqual(["2"]);
  await pressCtrlEnter();
  expect(document.activeElement?.id).toBe("field-checkpoint.monitor");
});

test("Ctrl+Enter submits, and the page goes to the job", async () => {
  answer = (asked) => (asked.path === "v1/jobs" ? { id: JOB } : FITS);
  const { host, asked } = await open();
  type(field(host, "field-name"), "night");
  await checked();
  expect(textOf(host.querySelector("footer [role=status]"))).toBe("It would start at once.");
  expect(asked.find(({ path }) => path === "v1/jobs/validate")?.query.get("place")).toBe("true");
  await pressCtrlEnter();
  expect(asked.find(({ path }) => path === "v1/jobs")?.body).toEqual({
    trainer: "image-classification",
    name: "night",
  });
  expect([route().page, route().id]).toEqual(["job", JOB]);
});

test("a default that the service changes is shown in its field and in its help", async () => {
  answer = () => ({
    ...FITS,
    spec: { idle_timeout: "2h", priority: 0, config: { training: { epochs: 3 } } },
  });
  const { host } = await open();
  unfold(host, "job");
  await checked();
  expect(field(host, "field-idle_timeout").placeholder).toBe("2h");
  expect(textOf(field(host, "help-idle_timeout"))).toContain("this service makes it 2h");
  expect(textOf(field(host, "help-priority"))).not.toContain("this service");
  expect(field(host, "field-config.training.epochs").placeholder).toBe("3");
});

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

test("Ctrl+Z takes back what was changed in the form, and what was typed as YAML", async () => {
  const { host } = await open();
  const begun = yamlOf(host).value;
  const press = (target: Element, init: KeyboardEventInit): boolean => {
    const event = new KeyboardEvent("keydown", { ...init, bubbles: true, cancelable: true });
    target.dispatchEvent(event);
    flushSync();
    return event.defaultPrevented;
  };
  const epochs = field(host, "field-config.training.epochs");
  type(epochs, "7");
  type(yamlOf(host), `${yamlOf(host).value}priority: 3\n`);
  expect(press(yamlOf(host), { key: "z", ctrlKey: true })).toBe(true);
  expect(yamlOf(host).value).toBe(`${begun}config:\n  training:\n    epochs: 7\n`);
  expect(press(epochs, { key: "z", metaKey: true })).toBe(true);
  expect([yamlOf(host).value, epochs.value]).toEqual([begun, ""]);
  press(epochs, { key: "Z", ctrlKey: true, shiftKey: true });
  expect(epochs.value).toBe("7");
  expect(press(field(host, "find-key"), { key: "z", ctrlKey: true })).toBe(false); // of no draft
});

test("what a job would wait for is said", async () => {
  answer = () => ({
    spec: {},
    waits_for: {
      fits: false,
      code: "devices_busy",
      message: "needs 2 devices; 1 free on box-a",
      position: 3,
    },
  });
  const { host } = await open();
  await checked();
  expect(textOf(host.querySelector("footer"))).toContain(
    "It would wait: needs 2 devices; 1 free on box-a. Number 3 in the queue.",
  );
});

test("when a job would start, and with which changes at once, is said once the typing has rested", async () => {
  const at = (minute: number): string => new Date(2026, 10, 27, 14, minute).toISOString();
  const waits = { fits: false, code: "devices_busy", message: "needs 2 devices; 1 free", position: 3 };
  const estimate = {
    ...{ expected: at(20), low: at(10), high: at(40), held: 158, of: 200 },
    made_at: new Date().toISOString(),
  };
  const starts_if = [
    { change: "time_limit", value: "2h", message: "with `time_limit` ≤ 2h" },
    { change: "devices", value: "1", message: "on 1 device" },
    { change: "preemptible", value: "true", message: "if preemptible" },
  ];
  answer = ({ query }) => ({
    spec: {},
    waits_for: query.has("forecast") ? { ...waits, estimate, starts_if } : waits,
  });
  const { host, asked } = await open();
  const forecasts = (): number => asked.filter(({ query }) => query.has("forecast")).length;
  const said = (): string => textOf(host.querySelector("footer [role=status]"));
  await checked();
  type(field(host, "field-name"), "night");
  await checked();
  expect([forecasts(), said()]).toEqual([
    0,
    "It would wait: needs 2 devices; 1 free. Number 3 in the queue.",
  ]);
  await vi.advanceTimersByTimeAsync(1_000);
  await settled();
  expect(forecasts()).toBe(1);
  expect(said()).toMatch(/Number 3 in the queue\. It would start between (27 Nov( 2026)? )?14:10 and 14:40;/);
  expect(said()).toMatch(/It would start at once with time_limit ≤ 2h, on 1 device or if preemptible\.$/);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(forecasts()).toBe(1); // nothing has changed
});

test("a forecast that fails or knows only a time before which nothing starts takes nothing away", async () => {
  const waits = { fits: false, code: "devices_busy", message: "needs 2 devices", position: 3 };
  const later_than = new Date(2027, 0, 3, 8).toISOString();
  let forecast: unknown = null;
  answer = ({ query }) => (query.has("forecast") ? forecast : { spec: {}, waits_for: waits });
  const { host } = await open();
  const said = async (): Promise<string> => {
    await checked();
    await vi.advanceTimersByTimeAsync(1_000);
    await settled();
    return textOf(host.querySelector("footer [role=status]"));
  };
  expect(await said()).toBe("It would wait: needs 2 devices. Number 3 in the queue.");
  forecast = { spec: {}, waits_for: { ...waits, later_than } };
  type(field(host, "field-name"), "night");
  expect(await said()).toMatch(/It would start later than .*08:00\.$/);
});

test("a value that varies makes a sweep", async () => {
  answer = (asked) => (asked.path === "v1/sweeps" ? { id: "swp_1" } : { spec: {}, points: 2 });
  const { host, asked } = await open();
  const row = field(host, "field-config.optimizer.lr").closest<HTMLElement>(".row");
  if (row) click(row, "vary");
  await settled();
  type(field(host, "field-config.optimizer.lr"), "0.1, 0.01");
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
  answer = () => ({ spec: {}, points: 2 });
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

test("a variable of the environment has a secret, and a plain value is not stored", async () => {
  const { host } = await open();
  type(yamlOf(host), "trainer: script\nconfig: {code: 'file:///a'}\nenv: {KEY: {secret: HF}}\n");
  expect(sessionStorage.length).toBe(1);
  unfold(host, "env");
  const select = host.querySelector<HTMLSelectElement>('[aria-label="Secret for KEY"]');
  expect(textsOf(select ?? host, "option")).toEqual(["a plain value", "secret HF"]);
  type(yamlOf(host), "trainer: script\nenv: {KEY: hunter2}\n");
  expect(JSON.stringify({ ...sessionStorage })).not.toContain("hunter2");
  expect(sessionStorage.length).toBe(0);
  const leaving = new Event("beforeunload", { cancelable: true });
  window.dispatchEvent(leaving);
  expect(leaving.defaultPrevented).toBe(true);
});

test("a draft is there again after a reload, until one starts anew", async () => {
  const first = await open();
  type(field(first.host, "field-name"), "kept");
  await removeAll();
  signIn("member", "jobs:read", "jobs:write");
  const { host } = await open();
  expect(field(host, "field-name").value).toBe("kept");
  expect(sessionStorage.key(0)).toContain(" ada ");
  click(host, "Start anew");
  await settled();
  expect(field(host, "field-name").value).toBe("");
  expect(sessionStorage.length).toBe(0);
});

test("a job is cloned with what differs from the defaults", async () => {
  navigate(href("submit", { from: JOB }));
  const spec = { trainer: "image-classification", name: "old", priority: 5, max_restarts: 2, labels: {} };
  answer = (asked) => (asked.path === `v1/jobs/${JOB}` ? { id: JOB, name: "old", spec } : FITS);
  const { host } = await open();
  expect(yamlOf(host).value).toBe("trainer: image-classification\nname: old\npriority: 5\n");
  expect(textOf(host.querySelector("header"))).toBe("Submit from old");
});

test("a key schedule adds a schedule", async () => {
  const first_run_at = new Date(Date.now() + 2.5 * 3_600_000).toISOString();
  answer = (asked) => (asked.path === "v1/schedules" ? { id: "sch_1" } : { ...FITS, first_run_at });
  const { host, asked } = await open();
  type(yamlOf(host), "trainer: image-classification\nschedule: 0 3 * * *\n");
  await checked();
  expect(textOf(host.querySelector("footer"))).toMatch(
    /^Submitted again and again, for you, first in 2h 30m: /,
  );
  click(host, "Add the schedule");
  await settled();
  expect(asked.find(({ path }) => path === "v1/schedules")?.body).toMatchObject({ schedule: "0 3 * * *" });
  expect(route().page).toBe("schedules");
});

test("weights are chosen among models and checkpoints of jobs", async () => {
  answer = ({ path }) => {
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

test("who may not submit is told so, and nothing is asked", async () => {
  signIn("viewer", "jobs:read");
  const { host, asked } = await open();
  expect(textOf(host)).toContain("it lacks the scope jobs:write");
  expect(asked).toEqual([]);
});
