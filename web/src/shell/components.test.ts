import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ApiError } from "../api/client";
import { live } from "../live/live.svelte";
import { setQuery } from "../router.svelte";
import Share from "../signs/Share.svelte";
import Spark from "../signs/Spark.svelte";
import { click, removeAll, serve, settled, show, signIn, textOf, textsOf, type Asked } from "../testing";
import Banner from "./Banner.svelte";
import Download from "./Download.svelte";
import Failure from "./Failure.svelte";
import Login from "./Login.svelte";
import Missing from "./Missing.svelte";
import Palette from "./Palette.svelte";
import { dismiss, pending, undoable } from "./undo.svelte";
import UndoBar from "./UndoBar.svelte";

beforeEach(() => void vi.useFakeTimers());

afterEach(async () => {
  await removeAll();
  live.status = "connecting";
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  vi.useRealTimers();
});

/** Opens the palette, whose service has these jobs and things by their paths. Returns what types into it. */
function palette(answers: Record<string, readonly Record<string, unknown>[]>): {
  host: HTMLElement;
  asked: readonly Asked[];
  type: (text: string) => void;
  press: (key: string) => void;
  answered: () => Promise<void>;
} {
  vi.stubGlobal("scrollTo", () => undefined);
  const asked = serve(({ path, query }) => {
    const found = answers[path] ?? [];
    const name = query.get("name");
    return { data: name === null ? found : found.filter((each) => each["name"] === name), has_more: false };
  });
  const host = show(Palette, { close: () => undefined });
  const field = host.querySelector("input");
  if (!field) throw new Error("no field");
  return {
    ...{ host, asked },
    type: (text) => {
      field.value = text;
      field.dispatchEvent(new Event("input", { bubbles: true }));
      flushSync();
    },
    press: (key) => {
      field.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      flushSync();
    },
    answered: async () => {
      await vi.advanceTimersByTimeAsync(100);
      await settled();
    },
  };
}

const named = (name: string, labels: Record<string, string> = {}): Record<string, unknown> => ({
  ...{ id: `job_${name}`, name, owner: "ada", state: "failed", labels },
  status_reason: { code: "user_error", message: "exit code 1" },
});

test("the palette offers pages, and jobs once a name is typed; keys choose one", async () => {
  const { host, type, press, answered } = palette({ "v1/jobs": [named("failing-unet")] });
  expect(textsOf(host, ".found").slice(0, 2)).toEqual(["Now", "Jobs"]);
  type("fail");
  await answered();
  expect(textsOf(host, ".found")).toEqual(["failing-unet", "Failed jobs"]);
  press("ArrowDown");
  expect(textOf(host.querySelector("[aria-selected=true] .found"))).toBe("Failed jobs");
  press("Enter");
  expect(location.search).toBe("?state=failed");
  history.replaceState(null, "", "/");
});

test("the palette puts exact names first, then beginnings, and jobs with the text elsewhere last", async () => {
  const jobs = [named("other", { team: "unet" }), named("big-unet"), named("unet-2"), named("unet")];
  const { host, type, answered } = palette({ "v1/jobs": jobs, "v1/sweeps": [{ id: "swp_1", name: "unet" }] });
  type("unet");
  await answered();
  expect(textsOf(host, ".found")).toEqual(["unet", "unet", "unet-2", "big-unet", "other"]);
  expect(textsOf(host, ".found + .muted").slice(0, 2)).toEqual(["ada", "sweep"]);
});

test("the palette finds workers, users, schedules, models and settings, as far as the account may", async () => {
  const things = {
    "v1/workers": [{ id: "wrk_1", name: "box-a" }],
    "v1/users": [{ name: "boxer" }],
    "v1/schedules": [{ id: "sch_1", name: "box-nightly" }],
    "v1/models": [{ owner: "ada", name: "box" }],
  };
  signIn("admin", "jobs:read", "cluster:read", "users");
  const { host, type, press, answered } = palette(things);
  type("box");
  await answered();
  expect(textsOf(host, ".found").toSorted()).toEqual(["ada/box", "box-a", "box-nightly", "boxer"]);
  type("quotas");
  await answered();
  expect(textsOf(host, ".found")).toEqual(["Settings: Quotas"]);
  press("Enter");
  expect(location.search).toBe("?section=quotas");
  history.replaceState(null, "", "/");
});

test("Enter opens what the text finds, and not what the one before has found", async () => {
  const { type, press, answered } = palette({ "v1/jobs": [named("first"), named("second")] });
  type("first");
  await answered();
  type("second");
  press("Enter");
  expect(location.pathname).toBe("/");
  await answered();
  expect(location.pathname).toBe("/jobs/job_second");
  history.replaceState(null, "", "/");
});

test("where a job is missing, a search and the newest ones are offered", async () => {
  const unneeded = { state: "failed", status_reason: { code: "dependency_failed", message: "not needed" } };
  const asked = serve(() => ({ data: [{ id: "job_a", name: "cracks-unet", ...unneeded }] }));
  vi.stubGlobal("scrollTo", () => undefined);
  const failure = new ApiError(404, "not_found", "there is no job 'job_x'");
  const host = show(Missing, { kind: "job", path: "jobs", failure, retry: () => undefined });
  await settled();
  expect(textOf(host.querySelector("h1"))).toBe("No such job");
  expect(asked.map(({ path }) => path)).toEqual(["v1/jobs"]);
  expect(host.querySelector("li a")?.getAttribute("href")).toContain("jobs/job_a");
  expect(textOf(host.querySelector("li .muted"))).toBe("skipped");
  const field = host.querySelector("input");
  if (!field) throw new Error("no field");
  field.value = "unet";
  field.dispatchEvent(new Event("input", { bubbles: true }));
  click(host, "Find jobs");
  expect(location.search).toBe("?q=unet");
  setQuery({ q: null });
  history.replaceState(null, "", "/");
});

test("of a job that was deleted as one looked, nothing is left to guess or to try again", async () => {
  serve(() => ({ data: [] }));
  const failure = new ApiError(404, "gone", "The job was deleted.");
  const host = show(Missing, { kind: "job", path: "jobs", failure, retry: () => undefined });
  await settled();
  expect(textOf(host.querySelector("[role=alert]"))).toBe("The job was deleted.");
});

test("where a sweep cannot be read just now, nothing is said to be missing", async () => {
  const asked = serve(() => ({ data: [] }));
  const failure = new ApiError(503, "unavailable", "the store does not answer");
  const host = show(Missing, { kind: "sweep", path: "sweeps", failure, retry: () => undefined });
  await settled();
  expect(textOf(host.querySelector("h1"))).toBe("The sweep cannot be shown");
  expect(asked).toEqual([]);
});

test("a banner says what the page does while the stream is away, and nothing while it works", () => {
  const host = show(Banner, {});
  const says = (status: typeof live.status): string => {
    live.status = status;
    flushSync();
    return textOf(host.querySelector("[role=alert] span"));
  };
  expect(says("live")).toBe("");
  expect(says("polling")).toBe("Live updates are interrupted: reading every 5 s.");
  expect(says("lost")).toContain("does not answer");
  const retry = vi.spyOn(live, "retry").mockReturnValue();
  click(host, "Try now");
  expect(retry).toHaveBeenCalledOnce();
});

test("a failure says what, what next, and the request's id", () => {
  const errors = [{ field: "config.epochs", message: "is no number" }] as unknown as ApiError["errors"];
  const host = show(Failure, {
    failure: new ApiError(503, "unavailable", "The database is away.", "req_1", errors),
    ...{ what: "The list cannot be read.", retry: () => undefined },
  });
  const text = textOf(host.querySelector("p"));
  for (const part of [
    "cannot be read. The database",
    "config.epochs is no number",
    "torchyard doctor",
    "req_1",
  ])
    expect(text).toContain(part);
  expect(textsOf(host, "button")).toEqual(["Try again"]);
  expect(textOf(show(Failure, { failure: new ApiError(500, "x", "Oh.") }))).toContain(
    "the service's log has more",
  );
});

test("a download that is refused says why", async () => {
  serve(() => null);
  const host = show(Download, { path: "v1/jobs/job_a/logs/download", label: "raw" });
  click(host, "raw");
  await settled();
  expect(textOf(host.querySelector("[role=alert]"))).toBe("There is none.");
});

test("a token is sent once, and a wrong one is named as wrong, and forgotten", async () => {
  vi.stubGlobal("fetch", () =>
    Promise.resolve(new Response(JSON.stringify({ code: "unauthenticated", detail: "no" }), { status: 401 })),
  );
  const host = show(Login, {});
  const field = host.querySelector("input");
  if (!field) throw new Error("no field");
  field.value = " ty_wrong ";
  field.dispatchEvent(new Event("input", { bubbles: true }));
  flushSync();
  host.querySelector("form")?.dispatchEvent(new Event("submit", { bubbles: true, cancelable: true }));
  await settled();
  expect([
    textOf(host.querySelector("[role=alert] p")).includes("unknown, expired or revoked"),
    field.value,
  ]).toEqual([true, ""]);
});

test("what waits can be undone, and leaving the page sends it", async () => {
  signIn("member", "jobs:write");
  const host = show(UndoBar, {});
  const sent: boolean[] = [];
  void undoable("Cancelling digits.", (keepalive) => Promise.resolve(void sent.push(keepalive)));
  flushSync();
  expect(textsOf(host, ".text")).toEqual(["Cancelling digits."]);
  click(host, "Undo z");
  expect(textsOf(host, ".text")).toEqual([]);
  void undoable("Deleting digits.", (keepalive) => Promise.resolve(void sent.push(keepalive)));
  window.dispatchEvent(new Event("pagehide"));
  await settled();
  expect(sent).toEqual([true]);
  for (const item of pending()) dismiss(item.id);
});

test("small curves have gaps where nothing is known, and lie within their height", () => {
  const path = (props: Parameters<typeof show<typeof Spark>>[1]): string | null | undefined =>
    show(Spark, props).querySelector("path")?.getAttribute("d");
  expect(path({ values: [0, 1, null, 1], label: "x", width: 8, height: 12 })).toBe(
    "M1.0 10.5L3.0 1.5M7.0 1.5",
  );
  expect(path({ values: [0.5, null], label: "x", width: 10, height: 10, range: [0, 1], kind: "bars" })).toBe(
    "M2.5 10V5",
  );
  expect(path({ values: [null], label: "x" })).toBeUndefined();
});

test("a share is filled to its width, and never beyond", () => {
  const done = (share: number | null): string | null | undefined =>
    show(Share, { share, label: "x", width: 40 }).querySelector(".done")?.getAttribute("d");
  expect([0.25, 3, 0, null].map(done)).toEqual(["M0 3h10.0", "M0 3h40.0", undefined, undefined]);
});
