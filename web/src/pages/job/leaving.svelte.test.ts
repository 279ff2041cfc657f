/** Parts of a job that are left before the service has answered. */
import type { Component } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { live } from "../../live/live.svelte";
import { href, navigate } from "../../router.svelte";
import { removeAll, settled, show, signIn } from "../../testing";
import Lineage from "./Lineage.svelte";
import Logs from "./Logs.svelte";
import { view } from "./testing";

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("scrollTo", () => undefined);
  vi.spyOn(live, "watch").mockReturnValue(() => undefined);
  signIn("member", "jobs:read");
});

afterEach(async () => {
  await removeAll();
  navigate(href(""));
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test.each<[string, Component<Record<string, unknown>>]>([
  ["Lineage", Lineage as unknown as Component<Record<string, unknown>>],
  ["Logs", Logs as unknown as Component<Record<string, unknown>>],
])("%s takes no answer once it is left, and warns of nothing", async (_, part) => {
  const warned = vi.spyOn(console, "warn").mockReturnValue();
  const answers: (() => void)[] = [];
  vi.stubGlobal(
    "fetch",
    () =>
      new Promise((resolve) =>
        answers.push(() => resolve(new Response(JSON.stringify({ data: [], has_more: false, total: 0 })))),
      ),
  );
  const props = $state({ job: view({ attempt: 1 }), starts: new Map() });
  show(part, props);
  await vi.advanceTimersByTimeAsync(1_000);
  await settled();
  expect(answers.length).toBeGreaterThan(0);
  await removeAll();
  props.job = view({ id: "job_b" });
  navigate(href("jobs", { only: "1" })); // the address has changed, too
  for (const answer of answers) answer();
  await vi.advanceTimersByTimeAsync(1_000);
  await settled();
  expect(warned.mock.calls).toEqual([]);
});
