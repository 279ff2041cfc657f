import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { JobView } from "../../api/wire";
import { click, removeAll, settled, show, signIn, textOf } from "../../testing";
import Head from "./Head.svelte";
import Notes from "./Notes.svelte";
import { view } from "./testing";

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly body: unknown;
}

let sent: Sent[];
/** The job as the service has it. */
let stored: JobView;

beforeEach(() => {
  sent = [];
  stored = view({ notes: "it **diverged**", has_notes: true });
  vi.stubGlobal("fetch", (target: string, init: RequestInit) => {
    const body =
      typeof init.body === "string" ? (JSON.parse(init.body) as Record<string, unknown>) : undefined;
    const path = new URL(target).pathname.slice(1);
    sent.push({ method: init.method ?? "GET", path, body });
    if (path.endsWith("/star")) return Promise.resolve(new Response(null, { status: 204 }));
    if (body && "notes_before" in body && body["notes_before"] !== stored.notes) {
      const problem = { code: "conflict", detail: "the notes have changed", errors: [] };
      return Promise.resolve(Response.json(problem, { status: 409 }));
    }
    if (body) stored = { ...stored, ...body, version: stored.version + 1 } as JobView;
    return Promise.resolve(Response.json(stored));
  });
  signIn("member", "jobs:read", "jobs:write");
});

afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
});

async function opened(): Promise<HTMLElement> {
  const host = show(Notes, { job: stored, onchange: () => undefined });
  await settled();
  return host;
}

function type(host: HTMLElement, text: string): void {
  const area = host.querySelector("textarea");
  if (!area) throw new Error("nobody writes");
  area.value = text;
  area.dispatchEvent(new Event("input", { bubbles: true }));
  flushSync();
}

const patches = (): readonly unknown[] =>
  sent.filter(({ method }) => method === "PATCH").map(({ body }) => body);

test("notes are shown as Markdown, and written by who may change the job", async () => {
  const host = await opened();
  expect(host.querySelector("strong")?.textContent).toBe("diverged");
  click(host, "Edit");
  expect(host.querySelector("textarea")?.value).toBe("it **diverged**");
  type(host, "it *converged*");
  click(host, "Save");
  await settled();
  expect(patches()).toEqual([{ notes: "it *converged*", notes_before: "it **diverged**" }]);
  expect(host.querySelector("textarea")).toBeNull();
});

test("others read notes and cannot write them", async () => {
  stored = view({ owner: "bob", notes: "seen" });
  expect(textOf(await opened())).toBe("seen");
});

test("what others have stored meanwhile is shown, and replaced only if one says so", async () => {
  const host = await opened();
  click(host, "Edit");
  type(host, "mine");
  stored = { ...stored, notes: "theirs", version: 7 } as JobView;
  click(host, "Save");
  await settled();
  expect(textOf(host.querySelector(".conflict"))).toContain("theirs");
  expect(host.querySelector("textarea")?.value).toBe("mine");
  expect(stored.notes).toBe("theirs");
  click(host, "Replace them");
  await settled();
  expect(stored.notes).toBe("mine");
  expect(patches().at(-1)).toEqual({ notes: "mine", notes_before: "theirs" });
});

test("notes that are too long are not sent", async () => {
  const host = await opened();
  click(host, "Edit");
  type(host, "本".repeat(22_000));
  expect(textOf(host)).toContain("464 bytes too many");
  expect(host.querySelector<HTMLButtonElement>("button[type=submit]")?.disabled).toBe(true);
});

test("the head stars and archives the job, and links its labels", async () => {
  const changed: JobView[] = [];
  const job = view({ state: "succeeded", starred: false, archived: false, labels: { team: "a b" } });
  const host = show(Head, {
    job,
    attempts: [],
    onchange: (next) => changed.push(next),
    ondelete: () => undefined,
  });
  host.querySelector<HTMLButtonElement>(".star")?.click();
  await settled();
  click(host, "Archive");
  await settled();
  expect(sent.map(({ method, path, body }) => [method, path, body])).toEqual([
    ["PUT", "v1/jobs/job_a/star", undefined],
    ["PATCH", "v1/jobs/job_a", { archived: true }],
  ]);
  expect([changed[0]?.starred, changed[1]?.archived]).toEqual([true, true]);
  expect(host.querySelector(".label")?.getAttribute("href")).toContain("label=team%3Aa");
});
