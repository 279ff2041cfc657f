import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test } from "vitest";
import { href, navigate, route } from "../../router.svelte";
import { read } from "../../specs/reading";
import { click, settled, signIn, textOf, textsOf, removeAll } from "../../testing";
import {
  begin,
  end,
  service,
  FITS,
  JOB,
  open,
  yamlOf,
  field,
  type,
  unfold,
  checked,
  pressCtrlEnter,
} from "./testing";

beforeEach(begin);
afterEach(end);

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

test("a new sweep begins with values that vary", async () => {
  navigate(href("submit", { sweep: "new" }));
  const { host, asked } = await open();
  expect(yamlOf(host).value).toContain("config.optimizer.lr: [0.1, 0.01]");
  expect(textOf(host.querySelector("footer .primary"))).toBe("Submit the sweep");
  expect(asked.some(({ path }) => path.startsWith("v1/sweeps/"))).toBe(false);
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

test("Ctrl+Enter submits, and the page goes to the job", async () => {
  service.answer = (asked) => (asked.path === "v1/jobs" ? { id: JOB } : FITS);
  const { host, asked } = await open();
  type(field(host, "field-name"), "night");
  await checked();
  expect(textOf(host.querySelector("footer [role=status]"))).toBe("Starts now.");
  expect(asked.find(({ path }) => path === "v1/jobs/validate")?.query.get("place")).toBe("true");
  await pressCtrlEnter();
  expect(asked.find(({ path }) => path === "v1/jobs")?.body).toEqual({
    trainer: "image-classification",
    name: "night",
  });
  expect([route().page, route().id]).toEqual(["job", JOB]);
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
  click(host, "Reset");
  await settled();
  expect(field(host, "field-name").value).toBe("");
  expect(sessionStorage.length).toBe(0);
});

test("a job is cloned with what differs from the defaults", async () => {
  navigate(href("submit", { from: JOB }));
  const spec = { trainer: "image-classification", name: "old", priority: 5, max_restarts: 2, labels: {} };
  service.answer = (asked) => (asked.path === `v1/jobs/${JOB}` ? { id: JOB, name: "old", spec } : FITS);
  const { host } = await open();
  expect(yamlOf(host).value).toBe("trainer: image-classification\nname: old\npriority: 5\n");
  expect(textOf(host.querySelector("header"))).toBe("Submit from old");
});

test("a job is cloned with the expression that makes curves of its log", async () => {
  const metric = String.raw`loss[ =:]+(?P<value>\S+)`;
  navigate(href("submit", { from: JOB, metric }));
  const spec = { trainer: "script", name: "old", config: { code: "file:///c" }, metrics: { patterns: [] } };
  service.answer = (asked) => (asked.path === `v1/jobs/${JOB}` ? { id: JOB, name: "old", spec } : FITS);
  const { host } = await open();
  expect(read(yamlOf(host).value).document.metrics).toEqual({ patterns: [metric] });
});

test("the environments that workers offer are offered for config.python", async () => {
  signIn("member", "jobs:read", "jobs:write", "cluster:read");
  const ml = { name: "ml", python: "3.12.4", torch: "2.5.1", obstacle: "" };
  const worker = { name: "box-a", devices: [], pool: null };
  const environments = [ml, { ...ml, name: "old", obstacle: "its torch is too old" }];
  service.answer = ({ path }) =>
    path === "v1/workers"
      ? {
          data: [
            { ...worker, starts: { environments } },
            { ...worker, starts: { environments: [ml] } },
          ],
        }
      : FITS;
  const { host } = await open();
  type(yamlOf(host), "trainer: script\n");
  unfold(host, "config");
  const input = field(host, "field-config.python");
  const offered = [...(host.querySelector(`[id="${input.getAttribute("list") ?? ""}"]`)?.children ?? [])];
  expect(offered.map((option) => [option.getAttribute("value"), textOf(option)])).toEqual([
    ["ml", "Python 3.12.4, torch 2.5.1"],
  ]);
});

test("a new schedule begins with times", async () => {
  navigate(href("submit", { schedule: "new" }));
  const { host } = await open();
  expect(yamlOf(host).value).toContain('schedule: "0 3 * * *"\n');
});

test("a key schedule adds a schedule", async () => {
  const first_run_at = new Date(Date.now() + 2.5 * 3_600_000 + 30_000).toISOString();
  service.answer = (asked) => (asked.path === "v1/schedules" ? { id: "sch_1" } : { ...FITS, first_run_at });
  const { host, asked } = await open();
  type(yamlOf(host), "trainer: image-classification\nschedule: 0 3 * * *\n");
  await checked();
  expect(textOf(host.querySelector("footer"))).toMatch(/^Submitted on schedule, as you, first in 2h 30m: /);
  click(host, "Add the schedule");
  await settled();
  expect(asked.find(({ path }) => path === "v1/schedules")?.body).toMatchObject({ schedule: "0 3 * * *" });
  expect(route().page).toBe("schedules");
});

test("who may not submit reads so, and nothing is asked", async () => {
  signIn("viewer", "jobs:read");
  const { host, asked } = await open();
  expect(textOf(host)).toContain("your role or token lacks the scope jobs:write");
  expect(asked).toEqual([]);
});
