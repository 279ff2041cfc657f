import { flushSync } from "svelte";
import { afterEach, expect, test, vi } from "vitest";
import type { JobSummary } from "../../api/wire";
import { click, removeAll, serve, settled, show, textOf } from "../../testing";
import NotesEditor from "./NotesEditor.svelte";

afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
});

/** Opens the editor at a service that has these notes, and takes a change only from who knows them. */
async function open(stored: { notes: string | null }): Promise<{ host: HTMLElement; closed: unknown[] }> {
  serve(({ method, body }) => {
    if (stored.notes === null) return null;
    if (method !== "PATCH") return { notes: stored.notes };
    const { notes, notes_before } = body as { notes: string; notes_before: string };
    if (notes_before !== stored.notes) return new ConflictBody();
    stored.notes = notes;
    return { notes };
  });
  answerConflicts();
  const closed: unknown[] = [];
  const job = { id: "a", name: "digits" } as JobSummary;
  const host = show(NotesEditor, { job, close: (notes: string | null) => closed.push(notes) });
  await settled();
  return { host, closed };
}

class ConflictBody {
  readonly code = "conflict";
  readonly detail = "the notes have changed since you read them";
  readonly request_id = "req_1";
  readonly errors = [];
}

/** `serve` answers with 200 or 404: this makes its conflicts 409. */
function answerConflicts(): void {
  const answer = fetch;
  vi.stubGlobal("fetch", async (target: string, options: RequestInit) => {
    const found = await answer(target, options);
    const body = (await found.clone().json()) as { code?: string };
    return body.code === "conflict" ? new Response(JSON.stringify(body), { status: 409 }) : found;
  });
}

function write(host: HTMLElement, text: string): void {
  const field = host.querySelector("textarea");
  if (!field) throw new Error("there is no field");
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  flushSync();
}

async function save(host: HTMLElement): Promise<void> {
  host.querySelector("form")?.dispatchEvent(new SubmitEvent("submit", { bubbles: true, cancelable: true }));
  await settled();
}

test("what another tab has stored meanwhile is shown, and replaced only when one says so", async () => {
  const stored = { notes: "first" as string | null };
  const { host, closed } = await open(stored);
  write(host, "mine");
  stored.notes = "theirs";
  await save(host);
  expect(textOf(host.querySelector("pre"))).toBe("theirs");
  expect(host.querySelector("textarea")?.value).toBe("mine");
  expect([stored.notes, closed]).toEqual(["theirs", []]);
  await save(host);
  expect([stored.notes, closed]).toEqual(["mine", ["mine"]]);
});

test("one goes on from what another tab has stored", async () => {
  const stored = { notes: "first" as string | null };
  const { host } = await open(stored);
  write(host, "mine");
  stored.notes = "theirs";
  await save(host);
  click(host, "Go on from these");
  flushSync();
  expect(host.querySelector("textarea")?.value).toBe("theirs");
});

test("Escape closes the field only while nothing is written", async () => {
  const { host } = await open({ notes: "first" });
  const escape = (): boolean =>
    host.querySelector("dialog")?.dispatchEvent(new Event("cancel", { cancelable: true })) ?? false;
  expect(escape()).toBe(true);
  write(host, "mine");
  expect(escape()).toBe(false);
});

test("the notes of a job that is gone say so, and keep the draft", async () => {
  const stored = { notes: "first" as string | null };
  const { host, closed } = await open(stored);
  write(host, "mine");
  stored.notes = null;
  await save(host);
  expect(textOf(host.querySelector("[role=alert]"))).toBe("There is none.");
  expect([host.querySelector("textarea")?.value, closed]).toEqual(["mine", []]);
});
