import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { JobView } from "../../api/wire";
import { route, setQuery } from "../../router.svelte";
import { pressed } from "../../shell/shortcuts";
import { pending, undo } from "../../shell/undo.svelte";
import {
  changesOf,
  click,
  removeAll,
  serve,
  settled,
  show,
  signIn,
  textOf,
  textsOf,
  type Asked,
} from "../../testing";
import Head from "./Head.svelte";
import { attempt, ofTwoNodes, view } from "./testing";

beforeEach(() => {
  vi.useFakeTimers();
  serve(() => null);
});

afterEach(async () => {
  await removeAll();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
  history.replaceState(null, "", "/");
  setQuery({});
});

interface Shown {
  readonly host: HTMLElement;
  readonly changed: JobView[];
  readonly asked: string[];
}

function head(job: JobView, attempts = [attempt(1)]): Shown {
  const [changed, asked]: [JobView[], string[]] = [[], []];
  const host = show(Head, {
    job,
    attempts,
    onchange: (next) => changed.push(next),
    ondelete: () => asked.push("delete"),
    onnotes: () => asked.push("notes"),
    onstacks: () => asked.push("stacks"),
    onreach: (wanted) => asked.push(wanted),
  });
  return { host, changed, asked };
}

/** Opens the menu and returns what it offers, without the keys. */
function menu(host: HTMLElement): readonly string[] {
  host.querySelector<HTMLElement>("[aria-haspopup=menu]")?.click();
  flushSync();
  return textsOf(host, "[role=menuitem] > span");
}

function choose(host: HTMLElement, name: string): void {
  menu(host);
  const found = [...host.querySelectorAll<HTMLElement>("[role=menuitem]")].find(
    (item) => textOf(item.querySelector("span")) === name,
  );
  if (!found) throw new Error(`there is no ${name}`);
  found.click();
  flushSync();
}

const facts = (host: HTMLElement): string => textOf(host.querySelector(".facts"));
const lineage = (host: HTMLElement): string => textOf(host.querySelector(".lineage"));

test("the head has the one button that fits the state, and all else in its menu", () => {
  signIn("member", "jobs:read", "jobs:write");
  const copies = ["Copy as command line", "Copy as curl", "Copy as Python", "Copy id"];
  const offered = (changes: Record<string, unknown>): readonly string[] => {
    const { host } = head(view(changes));
    return [
      textOf(host.querySelector(".actions .primary")),
      ...menu(host).filter((name) => !copies.includes(name)),
    ];
  };
  const best = { metric: "val/loss", value: 0.5, step: 3 };
  expect(offered({})).toEqual([
    "Stop",
    "Pause",
    "Clone",
    "Show stacks",
    "Terminal",
    "Open port",
    "Share link",
    "Write notes",
  ]);
  expect(offered({ state: "queued" })).toEqual(["Stop", "Pause", "Clone", "Share link", "Write notes"]);
  expect(offered({ state: "paused", has_notes: true })).toEqual([
    ...["Resume", "Stop", "Clone", "Share link", "Edit notes"],
  ]);
  expect(offered({ state: "failed" })).toEqual([
    ...["Clone", "Retry", "Share link", "Write notes", "Archive", "Delete"],
  ]);
  expect(offered({ state: "failed", error: { code: "worker_lost" } }).slice(0, 2)).toEqual([
    ...["Retry", "Clone"], // no change would have prevented it
  ]);
  expect(offered({ state: "succeeded" })[0]).toBe("Clone"); // there is nothing to download
  expect(offered({ state: "succeeded", best, archived: true })).toEqual([
    ...["Download best", "Clone", "Share link", "Write notes", "Unarchive", "Delete"],
  ]);
  expect(offered({ owner: "bob" })).toEqual(["Clone", "Share link"]);
  expect(offered({ owner: "bob", state: "failed" })).toEqual(["Clone", "Retry", "Share link"]);
  signIn("operator", "jobs:read", "jobs:write");
  expect(offered({ owner: "bob" })).toEqual(["Clone", "Kill", "Share link"]);
  signIn("viewer", "jobs:read");
  expect(offered({ owner: "bob", state: "succeeded", best })).toEqual(["Download best", "Share link"]);
});

test("the menu is walked by arrows and letters, and Escape returns the focus", async () => {
  signIn("member", "jobs:read", "jobs:write");
  const { host } = head(view());
  const button = host.querySelector<HTMLElement>("[aria-haspopup=menu]");
  const press = async (key: string): Promise<string> => {
    document.activeElement?.dispatchEvent(
      new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }),
    );
    await settled();
    return textOf(document.activeElement?.querySelector("span") ?? document.activeElement);
  };
  button?.focus();
  expect(await press("ArrowDown")).toBe("Pause");
  expect(await press("ArrowDown")).toBe("Clone");
  expect(await press("Home")).toBe("Pause");
  expect(await press("ArrowUp")).toBe("Copy id");
  expect(await press("s")).toBe("Show stacks");
  expect(pending()).toEqual([]); // a letter in the menu is no key of the page
  await press("Escape");
  expect([document.activeElement === button, host.querySelector("[role=menu]")]).toEqual([true, null]);
});

test("a name is whole, however long, and the id is copied", async () => {
  const copied: string[] = [];
  vi.spyOn(navigator.clipboard, "writeText").mockImplementation((text) => {
    copied.push(text);
    return Promise.resolve();
  });
  const name = "n".repeat(100);
  const { host } = head(view({ name }));
  expect(textOf(host.querySelector("h1"))).toBe(name);
  choose(host, "Copy id");
  await settled();
  expect([copied, textOf(host.querySelector("[role=status]"))]).toEqual([
    ["job_a"],
    expect.stringContaining("Copied."),
  ]);
});

test("the head says where the job runs, how far it is and what was best", () => {
  const progress = { step: 5, fraction: 0.369, epoch: 7, epochs: 20, eta_seconds: 60 };
  const best = { metric: "val/iou", value: 0.5, epoch: 3, remeasured: 0.25 };
  const text = facts(head(view({ progress, best })).host);
  for (const part of [
    ...["7/20", "36%", "ETA 1m", "best val/iou", "in epoch 3, re-evaluated 0.25", "box-a:0,1"],
  ])
    expect(text).toContain(part);
});

test("the head of a job that waits says what it asks for", () => {
  const asked = (state: string, more: Record<string, unknown> = {}): string => {
    const spec = { resources: { device: "cpu", nodes: 1, devices_per_node: 2, ...more } };
    return facts(head(view({ state, spec })).host);
  };
  expect(asked("queued")).toMatch(/^2 CPU slots /);
  expect(asked("paused", { cpus: 1, memory_gb: 0.5 })).toMatch(/^2 CPU slots 1 CPU, 0.5 GiB of memory /);
  expect(asked("running", { cpus: 3 })).toMatch(/^box-a:0,1 3 CPUs /);
});

test("a job in a pool says which nodes it has, and what it asks for until the cluster has chosen them", () => {
  const shown = (job: JobView, devices: readonly unknown[]): string =>
    facts(head(job, [attempt(1, { worker: "gpu", devices })]).host);
  expect(shown(ofTwoNodes({ devices: [], state: "starting" }), [])).toMatch(
    /^gpu: 2 nodes with 2 GPUs each /,
  );
  expect(shown(ofTwoNodes(), [{ index: null, node: 0 }])).toMatch(/^gpu: n1:0,1 n2:0,1 /);
});

test("the lineage leads both ways: to what the job comes from, and to what came from it", async () => {
  const asked = serve(({ path, query }) => {
    if (path === "v1/models") return { data: [{ owner: "ada", name: "cracks" }], has_more: false };
    const id = query.has("retry_of") ? "job_r" : "job_s";
    return { data: [{ id, name: id === "job_r" ? "again" : "finer" }], has_more: id === "job_s" };
  });
  const after = [
    { job_id: "job_b", name: "prep", on: "succeeded", state: "running" },
    { job_id: "job_c", name: null, on: "failed", state: null },
  ];
  const from = { ref: "job_f/best", job_id: "job_f", checkpoint_id: "c", model: null, step: 1200 };
  const sweep = { id: "swp_1", name: "lr", trial: 3, point: {} };
  const { host } = head(
    view({
      state: "failed",
      finished_at: "2026-01-01T01:00:00Z",
      after,
      init_from: from,
      sweep,
      retry_of: "job_o",
    }),
  );
  expect(lineage(host)).toBe(
    "trial 3 of lr retries an earlier job starts from step 1,200 of another job after prep (running), another job",
  );
  expect(asked).toEqual([]); // the first curve goes before
  await vi.advanceTimersByTimeAsync(600);
  flushSync();
  expect(lineage(host)).toContain("retried as again initial weights for finer, … model ada/cracks");
  const links = [...host.querySelectorAll(".lineage a")].map((link) => link.getAttribute("href"));
  expect(links).toEqual([
    ...["/sweeps/swp_1", "/jobs/job_o", "/jobs/job_f?tab=checkpoints", "/jobs/job_b", "/jobs/job_c"],
    ...["/jobs/job_r", "/jobs/job_s", "/models"],
  ]);
});

test("the arguments of a script are shown as they are typed", () => {
  const config = { entrypoint: "train.py", args: ["--no-augment", "--name", "a b"] };
  const spec = { ...view().spec, trainer: "script", config };
  const { host } = head(view({ spec, sweep: { id: "swp_1", name: "s", trial: 3, point: {} } }));
  expect(host.querySelector(".argv")?.textContent).toBe("train.py --no-augment --name 'a b'");
  expect(head(view()).host.querySelector(".argv")).toBeNull();
});

test("a pause is sent at once, also by its key, and a refusal is shown", async () => {
  signIn("member", "jobs:read", "jobs:write");
  let answer: unknown = view({ state: "paused" });
  const asked = serve(() => answer);
  const { host, changed } = head(view());
  choose(host, "Pause");
  await settled();
  expect([changesOf(asked)[0]?.path, changed[0]?.state]).toEqual(["v1/jobs/job_a/pause", "paused"]);
  answer = null;
  pressed(new KeyboardEvent("keydown", { key: "p" }));
  await settled();
  expect([changesOf(asked)[1]?.path, textOf(host.querySelector("[role=alert]"))]).toEqual([
    "v1/jobs/job_a/pause",
    "There is none.",
  ]);
});

test("a stop and a delete wait, and an undone one is not sent", async () => {
  signIn("member", "jobs:read", "jobs:write");
  const all = serve(({ method }) => (method === "GET" ? { data: [], has_more: false } : {}));
  const sent = (): readonly string[] => changesOf(all).map(({ method, path }) => `${method} ${path}`);
  const stops = head(view());
  pressed(new KeyboardEvent("keydown", { key: "s" }));
  expect(pending().map((item) => item.sentence)).toEqual(["Stopping unet."]);
  undo();
  await vi.advanceTimersByTimeAsync(6000);
  expect(sent()).toEqual([]);
  click(stops.host, "Stop");
  await vi.advanceTimersByTimeAsync(6000);
  expect(sent()).toEqual(["POST v1/jobs/job_a/cancel"]);
  const gone = head(view({ state: "failed" }));
  choose(gone.host, "Delete");
  await vi.advanceTimersByTimeAsync(6000);
  expect([sent()[1], gone.asked]).toEqual(["DELETE v1/jobs/job_a", ["delete"]]);
});

const MESSAGE =
  "saves a checkpoint first; if that fails, 412 steps (18 GPU-min) are lost; a retry resumes at step 3,000";

/** Answers prices, and all else as if nothing had changed. Returns what asks for the requests for prices. */
function servePrices(): () => readonly Asked[] {
  const all = serve(({ method, path, body }) => {
    if (method === "GET") return { data: [], has_more: false };
    const { action, now } = (body ?? {}) as { action?: string; now?: boolean };
    return path === "v1/jobs/actions"
      ? {
          price: {
            message: now
              ? "killed without saving: 18 GPU-min are lost"
              : action === "pause"
                ? "nothing is lost yet"
                : MESSAGE,
          },
        }
      : view();
  });
  return () => all.filter(({ path }) => path === "v1/jobs/actions");
}

test("what a stop costs is asked for once one looks at the button, said there, and never waited for", async () => {
  signIn("member", "jobs:read", "jobs:write");
  const asked = servePrices();
  const { host } = head(view());
  const button = host.querySelector<HTMLElement>(".actions .primary");
  if (!button) throw new Error("no button");
  const price = (): string => textOf(host.querySelector(`[id="${button.getAttribute("aria-describedby")}"]`));
  const looks = async (by: "pointerenter" | "focusin" | "pointerleave" | "focusout"): Promise<void> => {
    button.parentElement?.dispatchEvent(new Event(by, { bubbles: true }));
    flushSync();
    await vi.advanceTimersByTimeAsync(200);
    await settled();
  };
  button.parentElement?.dispatchEvent(new Event("pointerenter"));
  button.parentElement?.dispatchEvent(new Event("pointerleave"));
  await vi.advanceTimersByTimeAsync(1_000);
  expect([asked().length, price()]).toEqual([0, ""]); // who passes asks nothing
  await looks("pointerenter");
  expect(price()).toBe(
    "Saves a checkpoint first; if that fails, 412 steps (18 GPU-min) are lost; a retry resumes at step 3,000.",
  );
  expect(asked().map(({ body }) => body)).toEqual([{ action: "cancel", ids: ["job_a"], dry_run: true }]);
  await looks("focusin");
  await looks("focusout");
  await looks("pointerleave");
  expect([asked().length, price()]).toEqual([1, ""]);
  await vi.advanceTimersByTimeAsync(10_000);
  await looks("focusin");
  expect(asked()).toHaveLength(2);
  button.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  flushSync();
  expect(price()).toBe("");
});

test("the menu says what a pause costs, and the bar what a stop does; a failing answer blocks neither", async () => {
  signIn("operator", "jobs:read", "jobs:write");
  const asked = servePrices();
  const mine = head(view());
  menu(mine.host);
  await settled();
  const pause = [...mine.host.querySelectorAll("[role=menuitem]")].find((item) =>
    textOf(item).startsWith("Pause"),
  );
  const note = mine.host.querySelector(`[id="${pause?.getAttribute("aria-describedby")}"]`);
  expect([textOf(note), asked().length]).toEqual(["Nothing is lost yet.", 1]);
  click(mine.host, "Stop");
  await settled();
  expect(pending()[0]?.note()).toMatch(/^Saves a checkpoint first/);
  undo();
  choose(head(view({ owner: "bob" })).host, "Kill");
  await settled();
  expect(pending()[0]?.note()).toBe("Killed without saving: 18 GPU-min are lost.");
  undo();
  expect(asked().map(({ body }) => (body as { now?: boolean }).now ?? false)).toEqual([false, false, true]);
  serve(() => null);
  click(head(view()).host, "Stop");
  await settled();
  expect([pending()[0]?.sentence, pending()[0]?.note()]).toEqual(["Stopping unet.", null]);
  undo();
  const none = servePrices();
  menu(head(view({ state: "queued" })).host);
  expect(none()).toEqual([]); // nothing runs
});

test("who can read the job is changed in place, and then shown", async () => {
  signIn("member", "jobs:read", "jobs:write");
  const asked = serve(({ body }) => view({ ...(body as object) }));
  const { host, changed } = head(view({ visibility: "private" }));
  const choice = host.querySelector<HTMLSelectElement>("select");
  if (!choice) throw new Error("no choice");
  expect(choice.title).toBe("Only you and administrators can read it");
  choice.value = "team";
  choice.dispatchEvent(new Event("change", { bubbles: true }));
  await settled();
  expect([asked[0]?.method, asked[0]?.body]).toEqual(["PATCH", { visibility: "team" }]);
  expect(changed[0]?.visibility).toBe("team");
  expect(textOf(host.querySelector("[role=status]"))).toContain(
    "Everyone with an account can read its log, files and notes now",
  );
  const others = head(view({ visibility: "private", owner: "bob" })).host;
  expect([others.querySelector("select"), facts(others).includes("private")]).toEqual([null, true]);
  const sweep = { id: "swp_1", name: "lr", trial: 3, point: {} };
  expect(facts(head(view({ visibility: "team", sweep })).host)).toContain("team, as its sweep");
});

test("the link is copied, and it says who can open it", async () => {
  signIn("member", "jobs:read", "jobs:write");
  const copied: string[] = [];
  vi.spyOn(navigator.clipboard, "writeText").mockImplementation((text) => {
    copied.push(text);
    return Promise.resolve();
  });
  const asked = serve(({ body }) => view({ ...(body as object) }));
  setQuery({ tab: "logs", line: "7" });
  const { host, changed } = head(view({ visibility: "private" }));
  choose(host, "Share link");
  await settled();
  expect(copied[0]).toMatch(/\?tab=logs&line=7$/);
  expect(textOf(host.querySelector("[role=status]"))).toContain("Only you and administrators can open it.");
  click(host, "Share with the team");
  await settled();
  expect([changesOf(asked)[0]?.body, changed[0]?.visibility]).toEqual([{ visibility: "team" }, "team"]);
});

test("a clone opens the form with the job's spec", () => {
  signIn("member", "jobs:read", "jobs:write");
  const { host } = head(view({ state: "failed" }));
  expect(host.querySelector("a.primary")?.getAttribute("href")).toBe("/submit?from=job_a");
  choose(head(view()).host, "Clone");
  expect(route().query.get("from")).toBe("job_a");
});

test("the head stars and archives the job, and links its labels", async () => {
  signIn("member", "jobs:read", "jobs:write");
  const asked = serve(({ body }) => view({ state: "succeeded", ...(body as object) }));
  const job = view({ state: "succeeded", starred: false, archived: false, labels: { team: "a b" } });
  const { host, changed } = head(job);
  host.querySelector<HTMLButtonElement>(".star")?.click();
  await settled();
  choose(host, "Archive");
  await settled();
  expect(asked.map(({ method, path, body }) => [method, path, body])).toEqual([
    ["PUT", "v1/jobs/job_a/star", undefined],
    ["PATCH", "v1/jobs/job_a", { archived: true }],
  ]);
  expect([changed[0]?.starred, changed[1]?.archived]).toEqual([true, true]);
  expect(host.querySelector(".facts a")?.getAttribute("href")).toContain("label=team%3Aa");
});
