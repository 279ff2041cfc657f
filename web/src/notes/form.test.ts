import { flushSync } from "svelte";
import { afterEach, expect, test, vi } from "vitest";
import { click, removeAll, settled, show, textOf } from "../testing";
import NotesForm from "./NotesForm.svelte";

/** The notes as the service has them; null of a job that is gone. */
let stored: string | null = "first";
let patches = 0;
const done = vi.fn();
const leave = vi.fn();

afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
  vi.clearAllMocks();
});

/** Shows the field at a service that takes a change only from who knows what is stored. */
async function open(notes: string | null): Promise<HTMLElement> {
  [stored, patches] = ["first", 0];
  vi.stubGlobal("fetch", (_: string, { method, body }: RequestInit) => Promise.resolve(answer(method, body)));
  const host = show(NotesForm, { jobId: "job_a", label: "Notes", notes, done, leave });
  await settled();
  return host;
}

function answer(method: string | undefined, body: unknown): Response {
  const refusal = { code: "", detail: "", request_id: "req_1", errors: [] };
  if (stored === null) return Response.json({ ...refusal, detail: "There is none." }, { status: 404 });
  if (method !== "PATCH") return Response.json({ notes: stored });
  patches += 1;
  const sent = JSON.parse(String(body)) as { notes: string; notes_before: string };
  if (sent.notes_before !== stored) return Response.json({ ...refusal, code: "conflict" }, { status: 409 });
  stored = sent.notes;
  return Response.json({ notes: stored });
}

function field(host: HTMLElement): HTMLTextAreaElement {
  const found = host.querySelector("textarea");
  if (!found) throw new Error("there is no field");
  return found;
}

function write(host: HTMLElement, text: string): void {
  field(host).value = text;
  field(host).dispatchEvent(new Event("input", { bubbles: true }));
  flushSync();
}

function submit(host: HTMLElement): void {
  host.querySelector("form")?.dispatchEvent(new SubmitEvent("submit", { bubbles: true, cancelable: true }));
}

async function save(host: HTMLElement): Promise<void> {
  submit(host);
  await settled();
}

test("notes that are not known are read, and written only then", async () => {
  const host = await open(null);
  expect([field(host).value, field(host).readOnly]).toEqual(["first", false]);
  write(host, "mine");
  await save(host);
  expect([stored, done.mock.calls]).toEqual(["mine", [[{ notes: "mine" }]]]);
});

test("what somebody else has stored meanwhile is shown, and replaced only when one says so", async () => {
  const host = await open("first");
  write(host, "mine");
  stored = "theirs";
  await save(host);
  expect([textOf(host.querySelector("pre")), field(host).value]).toEqual(["theirs", "mine"]);
  expect([stored, done.mock.calls]).toEqual(["theirs", []]);
  click(host, "Replace");
  await settled();
  expect([stored, done.mock.calls]).toEqual(["mine", [[{ notes: "mine" }]]]);
});

test("one goes on from what somebody else has stored", async () => {
  const host = await open("first");
  write(host, "mine");
  stored = "theirs";
  await save(host);
  click(host, "Edit this text");
  expect([field(host).value, host.querySelector("[role=alert]")]).toEqual(["theirs", null]);
});

test("what is sent twice is stored once, and is no conflict with itself", async () => {
  const host = await open("first");
  write(host, "mine");
  submit(host);
  await save(host);
  expect([patches, host.querySelector("[role=alert]")]).toEqual([1, null]);
});

test("notes that are too long are not sent", async () => {
  const host = await open("first");
  write(host, "本".repeat(22_000));
  expect(textOf(host)).toContain("464 bytes over the limit");
  expect(host.querySelector<HTMLButtonElement>("button[type=submit]")?.disabled).toBe(true);
});

test("the notes of a job that is gone say so, and keep the draft", async () => {
  const host = await open("first");
  write(host, "mine");
  stored = null;
  await save(host);
  expect(textOf(host.querySelector("[role=alert]"))).toBe("There is none.");
  expect([field(host).value, done.mock.calls]).toEqual(["mine", []]);
});

test("Escape leaves a field in which nothing was written, and keeps what was", async () => {
  const host = await open("first");
  const escape = (): unknown =>
    field(host).dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  escape();
  expect(leave).toHaveBeenCalledOnce();
  write(host, "mine");
  escape();
  expect(leave).toHaveBeenCalledOnce();
});
