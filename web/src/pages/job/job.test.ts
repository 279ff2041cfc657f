import { flushSync, mount, unmount } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { JobSummary } from "../../api/wire";
import type { LiveEvent } from "../../live/events";
import { live } from "../../live/live.svelte";
import { route, setQuery } from "../../router.svelte";
import { pressed } from "../../shell/shortcuts";
import Job from "./Job.svelte";

const asked: string[] = [];
let tell: (event: LiveEvent) => void;
let page: Record<string, unknown>;
let advice: unknown;

const job = {
  ...{ id: "job_a", name: "unet", state: "running", owner: "ada", attempt: 1, version: 3, position: 10 },
  ...{ metrics: {}, progress: { step: 0 }, status_reason: { code: "running" }, devices: [], after: [] },
  labels: {},
  spec: { resources: { device: "auto", nodes: 1, devices_per_node: 1 } },
};

function answer(path: string): unknown {
  if (/\/(attempts|jobs|models)$/.test(path)) return { data: [] };
  return path.endsWith("/advice") ? advice : job;
}

beforeEach(() => {
  vi.useFakeTimers();
  asked.length = 0;
  advice = { severity: "info", headline: "", evidence: [], steps: [], starts_if: [] };
  setQuery({ tab: "spec" });
  vi.stubGlobal("fetch", (target: string) => {
    const path = new URL(target).pathname;
    asked.push(path);
    return Promise.resolve(new Response(JSON.stringify(answer(path))));
  });
  vi.spyOn(live, "watch").mockImplementation((_, listener) => {
    tell = listener;
    return () => undefined;
  });
  page = mount(Job, { target: document.body, props: { id: "job_a" } });
});

afterEach(async () => {
  await unmount(page);
  setQuery({ tab: null });
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("the advice is read again every half minute, also while the job logs", async () => {
  flushSync();
  await vi.advanceTimersByTimeAsync(100);
  const advice = (): number => asked.filter((path) => path.endsWith("/advice")).length;
  tell({ kind: "job", job: { ...job, position: 11 } as unknown as JobSummary });
  await vi.advanceTimersByTimeAsync(100);
  const before = advice();
  for (let position = 12; position < 12 + 40; position++) {
    tell({ kind: "job", job: { ...job, position } as unknown as JobSummary });
    await vi.advanceTimersByTimeAsync(1000);
  }
  expect(advice()).toBe(before + 1);
});

test("brackets go from part to part, around both ends", async () => {
  flushSync();
  await vi.advanceTimersByTimeAsync(100);
  const tab = (key: string): string => {
    pressed(new KeyboardEvent("keydown", { key }));
    return route().query.get("tab") ?? "curves";
  };
  const parts = [...document.querySelectorAll("nav a")].map((link) => link.getAttribute("data-tab"));
  const seen = parts.map(() => tab("]"));
  expect([seen.at(-1), seen.toSorted()]).toEqual(["spec", parts.toSorted()]);
  expect([tab("["), tab("]")]).toEqual([seen.at(-2), "spec"]);
});

test("a job that fails says why below its name, before all else; what only warns comes after the facts", async () => {
  await vi.advanceTimersByTimeAsync(100);
  advice = { ...(advice as object), severity: "error", headline: "why" };
  const order = async (state: string, version: number): Promise<readonly string[]> => {
    tell({ kind: "job", job: { ...job, state, version } as unknown as JobSummary });
    await vi.advanceTimersByTimeAsync(100);
    flushSync();
    const parts = ["h1", ".advice", ".facts", "nav"];
    const shown = [...document.querySelectorAll(parts.join())];
    return shown.map((one) => parts.find((part) => one.matches(part)) ?? "");
  };
  expect(await order("starting", 4)).toEqual(["h1", ".facts", ".advice", "nav"]);
  expect(await order("failed", 5)).toEqual(["h1", ".advice", ".facts", "nav"]);
});
