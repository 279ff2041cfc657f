/** Why a job of the list waits. */
import { afterEach, expect, test } from "vitest";
import type { JobSummary } from "../../api/wire";
import { signOf } from "../../signs/jobsign";
import { removeAll, show, textOf } from "../../testing";
import Progress from "./Progress.svelte";
import Second from "./Second.svelte";

afterEach(removeAll);

function waiting(code: string, message: string): JobSummary {
  const status_reason = { code, message, estimate: null };
  return { state: "queued", status_reason, progress: { step: 0 }, metrics: {} } as unknown as JobSummary;
}

test("a job that no worker can ever run is red in the list, also on a phone, and one that waits is not", () => {
  const message = "needs 8 GPUs; the largest worker (box-a) has 2";
  for (const [code, red] of [
    ["too_big", message],
    ["no_such_device", message],
    ["devices_busy", ""],
  ] as const) {
    const job = waiting(code, message);
    expect(textOf(show(Progress, { job }).querySelector(".failed"))).toBe(red);
    expect(textOf(show(Second, { job, ago: "1m" }).querySelector(".failed"))).toBe(red);
  }
});

test("a job that was not needed is skipped, not failed", () => {
  const message = "not needed: pretrain succeeded";
  const job = {
    ...waiting("dependency_failed", message),
    state: "failed",
    error: { message },
  } as unknown as JobSummary;
  const sentence = show(Progress, { job }).querySelector(".clip");
  expect([signOf(job), textOf(sentence), sentence?.classList.contains("failed")]).toEqual([
    { state: "cancelled", word: "skipped" },
    message,
    false,
  ]);
});
