import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { settled, textOf, textsOf } from "../../testing";
import {
  begin,
  end,
  service,
  FITS,
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
  service.answer = (asked) => {
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

test("a default that the service changes is shown in its field and in its help", async () => {
  service.answer = () => ({
    ...FITS,
    spec: { idle_timeout: "2h", priority: 0, config: { training: { epochs: 3 } } },
  });
  const { host } = await open();
  unfold(host, "job");
  await checked();
  expect(field(host, "field-idle_timeout").placeholder).toBe("2h");
  expect(textOf(field(host, "help-idle_timeout"))).toContain("this service sets it to 2h");
  expect(textOf(field(host, "help-priority"))).not.toContain("this service");
  expect(field(host, "field-config.training.epochs").placeholder).toBe("3");
});

test("what a job would wait for is said", async () => {
  service.answer = () => ({
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
    "Waits: needs 2 devices; 1 free on box-a. Position 3 in the queue.",
  );
});

test("a job that no worker can ever run is said in red", async () => {
  const message = "needs 8 GPUs; the largest worker (box-a) has 2";
  service.answer = () => ({
    spec: {},
    waits_for: { fits: false, code: "too_big", message, position: 3 },
  });
  const { host } = await open();
  await checked();
  expect(textOf(host.querySelector("footer .never"))).toBe(`No worker can run it: ${message}.`);
});

test("what a trainer needs is red once one has left it empty, or asks to submit", async () => {
  service.answer = () => FITS;
  const { host } = await open();
  type(yamlOf(host), "trainer: script\n");
  await checked();
  const code = field(host, "field-config.code");
  expect(host.querySelectorAll('[aria-invalid="true"]')).toHaveLength(0);
  expect(textOf(host.querySelector("footer [role=status]"))).toBe("Needs config.code.");
  expect(host.querySelector(".gutter .wrong")).toBeNull();
  await pressCtrlEnter();
  expect(document.activeElement).toBe(code);
  expect(code.getAttribute("aria-invalid")).toBe("true");
  expect(textOf(host.querySelector(".wrong .failure"))).toBe("is missing.");
  type(yamlOf(host), "trainer: segmentation\n");
  const source = field(host, "field-config.data.source");
  expect(source.getAttribute("aria-invalid")).toBeNull();
  source.dispatchEvent(new FocusEvent("focusin", { bubbles: true }));
  source.dispatchEvent(new FocusEvent("focusout", { bubbles: true }));
  flushSync();
  expect(source.getAttribute("aria-invalid")).toBe("true");
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
  service.answer = ({ query }) => ({
    spec: {},
    waits_for: query.has("forecast") ? { ...waits, estimate, starts_if } : waits,
  });
  const { host, asked } = await open();
  const forecasts = (): number => asked.filter(({ query }) => query.has("forecast")).length;
  const said = (): string => textOf(host.querySelector("footer [role=status]"));
  await checked();
  type(field(host, "field-name"), "night");
  await checked();
  expect([forecasts(), said()]).toEqual([0, "Waits: needs 2 devices; 1 free. Position 3 in the queue."]);
  await vi.advanceTimersByTimeAsync(1_000);
  await settled();
  expect(forecasts()).toBe(1);
  expect(said()).toMatch(
    /Position 3 in the queue\. Expected start: between (27 Nov( 2026)? )?14:10 and 14:40;/,
  );
  expect(said()).toMatch(/Starts now with time_limit ≤ 2h, on 1 device or if preemptible\.$/);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(forecasts()).toBe(1); // nothing has changed
});

test("a forecast that fails or knows only a time before which nothing starts takes nothing away", async () => {
  const waits = { fits: false, code: "devices_busy", message: "needs 2 devices", position: 3 };
  const later_than = new Date(2027, 0, 3, 8).toISOString();
  let forecast: unknown = null;
  service.answer = ({ query }) => (query.has("forecast") ? forecast : { spec: {}, waits_for: waits });
  const { host } = await open();
  const said = async (): Promise<string> => {
    await checked();
    await vi.advanceTimersByTimeAsync(1_000);
    await settled();
    return textOf(host.querySelector("footer [role=status]"));
  };
  expect(await said()).toBe("Waits: needs 2 devices. Position 3 in the queue.");
  forecast = { spec: {}, waits_for: { ...waits, later_than } };
  type(field(host, "field-name"), "night");
  expect(await said()).toMatch(/Expected start: later than .*08:00\.$/);
});
