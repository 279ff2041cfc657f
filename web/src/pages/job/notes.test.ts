import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { JobView } from "../../api/wire";
import { parsingWorkers } from "../../markdown/testing";
import { click, removeAll, settled, show, signIn, textOf, textsOf } from "../../testing";
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
    if (body) stored = { ...stored, ...body, version: stored.version + 1 } as JobView;
    return Promise.resolve(Response.json(stored));
  });
  parsingWorkers();
  signIn("member", "jobs:read", "jobs:write");
});

afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
});

async function opened(): Promise<HTMLElement> {
  const host = show(Notes, { job: stored, onchange: () => undefined, isWriting: false });
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
  click(host, "Edit notes");
  expect(host.querySelector("textarea")?.value).toBe("it **diverged**");
  type(host, "it *converged*");
  click(host, "Save");
  await settled();
  expect(patches()).toEqual([{ notes: "it *converged*", notes_before: "it **diverged**" }]);
  expect(host.querySelector("textarea")).toBeNull();
});

test("what is typed after Write notes goes to the notes, whatever had the focus", async () => {
  const button = document.body.appendChild(document.createElement("button"));
  button.focus();
  const host = show(Notes, { job: stored, onchange: () => undefined, isWriting: true });
  await settled();
  expect(document.activeElement).toBe(host.querySelector("textarea"));
  button.remove();
});

test("others read notes and cannot write them", async () => {
  stored = view({ owner: "bob", notes: "seen" });
  expect(textOf(await opened())).toBe("seen");
});

test("of long notes the first lines are shown, and the rest when one asks", async () => {
  stored = view({
    notes: Array.from({ length: 9 }, (_, line) => `line ${line}`).join("\n"),
    has_notes: true,
  });
  const host = await opened();
  expect(sent).toEqual([]); // the job came with them
  expect(host.querySelector(".first")).not.toBeNull();
  click(host, "more");
  expect([host.querySelector(".first"), textsOf(host, "[aria-expanded=true]")]).toEqual([null, ["less"]]);
  stored = view({ notes: "short", has_notes: true });
  expect(textsOf(await opened(), "[aria-expanded]")).toEqual([]);
  stored = view({ notes: "- a\n".repeat(16_000), has_notes: true });
  const huge = await opened();
  expect(huge.querySelectorAll("li").length).toBe(500); // opening a job reads no more of them
});

test("one leaves the field as it was, also before the notes are known", async () => {
  const host = show(Notes, { job: { ...stored, notes: "" }, onchange: () => undefined, isWriting: true });
  await settled();
  expect(host.querySelector("textarea")?.value).toBe("it **diverged**");
  click(host, "Cancel");
  expect([host.querySelector("textarea"), patches()]).toEqual([null, []]);
});

test("notes that somebody writes first are read, as the stream does not tell them", async () => {
  stored = view({ notes: "the first", has_notes: true });
  const host = show(Notes, {
    job: { ...stored, notes: "" },
    onchange: () => undefined,
    isWriting: false,
  });
  await settled();
  expect(sent.map(({ path }) => path)).toEqual(["v1/jobs/job_a"]);
  expect(host.querySelector("textarea")).toBeNull();
});
