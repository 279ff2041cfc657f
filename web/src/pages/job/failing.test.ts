/** What a job shows that has failed, or that is silent: its traceback, and the stacks of its ranks. */
import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { AdviceView, JobView } from "../../api/wire";
import { merged } from "../../live/reported";
import { click, removeAll, serve, settled, show, textOf, textsOf } from "../../testing";
import Advice from "./Advice.svelte";
import Stacks from "./Stacks.svelte";
import { AT, view } from "./testing";
import { ownThreadsFirst, traceLines } from "./trace";
import Traceback from "./Traceback.svelte";

const TRACE = `Traceback (most recent call last):
  File "/home/ada/job/train.py", line 11, in <module>
    work()
  File "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", line 134, in forward
    return F.linear(input, self.weight, self.bias)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "<frozen importlib._bootstrap>", line 1, in _find
  File "C:\\jobs\\lib.py", line 4, in work
    return a(b)
RuntimeError: <b>shapes</b> cannot be multiplied
`;

beforeEach(() => void vi.useFakeTimers());

afterEach(async () => {
  await removeAll();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

const advice = (changes: Record<string, unknown>): AdviceView =>
  ({
    ...{ severity: "warning", headline: "h", cause: null, steps: [], evidence: [], starts_if: [] },
    ...changes,
  }) as AdviceView;

test("the frames of the user's own code are marked, with their lines", () => {
  const own = traceLines(TRACE).filter((line) => line.isOwn);
  expect(own.map((line) => line.text.trim())).toEqual([
    'File "/home/ada/job/train.py", line 11, in <module>',
    "work()",
    'File "C:\\jobs\\lib.py", line 4, in work',
    "return a(b)",
  ]);
});

test("in stacks, which have no lines of code, too", () => {
  const stacks = [
    "Current thread 0x1 (most recent call first):",
    '  File "/usr/lib/python3.12/threading.py", line 331 in wait',
    '  File "/opt/app/torchyard/run/eventlog.py", line 141 in _run',
    '  File "/home/ada/trainer/hang.py", line 4 in wait',
  ];
  expect(traceLines(stacks.join("\n")).map((line) => line.isOwn)).toEqual([false, false, false, true]);
});

test("of a rank's threads, those in the user's own code come first, and then the main one", () => {
  const waiting =
    'Thread 0x1 (most recent call first):\n  File "/opt/app/torchyard/run/eventlog.py", line 1 in a';
  const own = 'Thread 0x2 (most recent call first):\n  File "/home/ada/train.py", line 4 in wait';
  const main =
    'Current thread 0x3 (most recent call first):\n  File "/usr/lib/python3.12/threading.py", line 3 in b';
  expect(ownThreadsFirst([waiting, main, own].join("\n\n"))).toBe([own, main, waiting].join("\n\n"));
});

test("a traceback is whole, is copied whole, and is never read as a page", async () => {
  const copied: string[] = [];
  vi.spyOn(navigator.clipboard, "writeText").mockImplementation((text) => {
    copied.push(text);
    return Promise.resolve();
  });
  const host = show(Traceback, { text: TRACE, title: "Traceback of rank 0", isScript: true });
  expect(host.querySelector("pre")?.textContent.trim()).toBe(TRACE.trim());
  expect([host.querySelector("b"), host.querySelectorAll(".own").length]).toEqual([null, 4]);
  click(host, "Copy");
  await settled();
  expect([copied, textsOf(host, "button")]).toEqual([[TRACE], ["Copied"]]);
});

test("what hides or turns text in a traceback is named, and a recipe's frames are nobody's own", () => {
  const text = '  File "/home/ada/train.py", line 1\n    a\u202eb\u200b';
  const host = show(Traceback, { text, title: "t", isScript: true });
  expect(textsOf(host, ".own")).toEqual(['File "/home/ada/train.py", line 1', "a⟨U+202E⟩b⟨U+200B⟩"]);
  const recipe = show(Traceback, { text, title: "t", isScript: false });
  expect([recipe.querySelector(".own"), textOf(recipe.querySelector("summary"))]).toEqual([null, "t"]);
});

test("a failed job shows its traceback at once with the advice, and a running one none", () => {
  const error = { code: "user_error", message: "m", rank: 1, traceback: TRACE };
  const spec = { trainer: "script" };
  const shown = (state: string): HTMLElement => {
    const host = show(Advice, {
      advice: advice({}),
      job: view({ state, error, spec }),
      onstacks: null,
      Traceback,
      unfolds: true,
    });
    return host;
  };
  expect(textOf(shown("failed").querySelector("h2"))).toBe("Traceback of rank 1");
  expect(shown("failed").querySelector("details")?.open).toBe(true);
  expect(shown("running").querySelector("pre")).toBeNull();
  const folded = (job: JobView, unfolds: boolean): boolean | undefined => {
    const host = show(Advice, { advice: advice({}), job, onstacks: null, Traceback, unfolds });
    return host.querySelector("details")?.open;
  };
  expect(folded(view({ state: "failed", error, spec }), false)).toBe(false); // another part is looked at
  expect(folded(view({ state: "failed", error }), true)).toBe(false); // the code is ours, and the advice says more
});

test("a summary of a failed job does not take its traceback away", () => {
  const error = { code: "user_error", message: "m", traceback: TRACE };
  const known = view({ state: "failed", error });
  const reported = view({ state: "failed", version: 2, error: { ...error, traceback: null } });
  expect(merged(known, reported).error?.traceback).toBe(TRACE);
  const other = view({ state: "failed", version: 2, error: { code: "hang", message: "n", traceback: null } });
  expect(merged(known, other).error?.traceback).toBeNull();
});

test("advice that asks for the stacks offers them, to who may see them", () => {
  let asked = 0;
  const silent = advice({ steps: ["Show the stacks of its ranks: they show where each one is."] });
  const host = show(Advice, { advice: silent, job: view(), onstacks: () => (asked += 1), unfolds: true });
  click(host, "Show stacks");
  expect(asked).toBe(1);
  expect(
    textsOf(show(Advice, { advice: silent, job: view(), onstacks: null, unfolds: true }), "button"),
  ).toEqual([]);
  expect(
    textsOf(show(Advice, { advice: advice({}), job: view(), onstacks: () => 0, unfolds: true }), "button"),
  ).toEqual([]);
});

test("stacks are asked for once, and shown as soon as the ranks have answered", async () => {
  let ranks: unknown = null;
  const asked = serve(() => ({ attempt: 1, taken_at: ranks === null ? null : AT, ranks: ranks ?? [] }));
  const host = show(Stacks, { jobId: "job_a", isScript: true, close: () => undefined });
  await settled();
  expect(textOf(host.querySelector("[role=status]"))).toBe("Reading the stacks…");
  await vi.advanceTimersByTimeAsync(1000);
  ranks = [
    { rank: 0, text: '  File "/home/ada/hang.py", line 4 in wait', note: null },
    { rank: 1, text: null, note: "has not answered within 5 s" },
  ];
  await vi.advanceTimersByTimeAsync(1000);
  flushSync();
  expect(asked.map(({ method }) => method)).toEqual(["POST", "GET", "GET"]);
  expect([textOf(host.querySelector(".own")), textOf(host)]).toEqual([
    'File "/home/ada/hang.py", line 4 in wait',
    expect.stringContaining("Rank 1: has not answered within 5 s"),
  ]);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(asked).toHaveLength(3);
});

test("who waits for stacks in vain reads so", async () => {
  const asked = serve(() => ({ attempt: 1, taken_at: null, ranks: [] }));
  const host = show(Stacks, { jobId: "job_a", isScript: true, close: () => undefined });
  await vi.advanceTimersByTimeAsync(60_000);
  flushSync();
  expect(asked).toHaveLength(16);
  expect(textOf(host.querySelector("[role=alert]"))).toContain("The worker has not answered");
});
