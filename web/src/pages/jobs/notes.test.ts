import { flushSync } from "svelte";
import { afterEach, expect, test, vi } from "vitest";
import type { JobSummary } from "../../api/wire";
import { click, removeAll, serve, settled, show } from "../../testing";
import NotesEditor from "./NotesEditor.svelte";

afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
});

async function open(): Promise<{ host: HTMLElement; closed: unknown[] }> {
  serve(({ body }) => body ?? { notes: "first" });
  const closed: unknown[] = [];
  const job = { id: "a", name: "digits" } as JobSummary;
  const host = show(NotesEditor, { job, close: (notes: string | null) => closed.push(notes) });
  await settled();
  return { host, closed };
}

function write(host: HTMLElement, text: string): void {
  const field = host.querySelector("textarea");
  if (!field) throw new Error("there is no field");
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  flushSync();
}

test("the notes are read, written over the table, and what was stored is passed on", async () => {
  const { host, closed } = await open();
  expect(host.querySelector("textarea")?.value).toBe("first");
  write(host, "mine");
  click(host, "Save");
  await settled();
  expect(closed).toEqual(["mine"]);
});

test("Escape closes the field only while nothing is written, however often it is pressed", async () => {
  const { host } = await open();
  /** Says whether the browser goes on: a key may become a `cancel`, which closes the dialog. */
  const escape = (): boolean => {
    const key = new KeyboardEvent("keydown", { key: "Escape", bubbles: true, cancelable: true });
    host.querySelector("textarea")?.dispatchEvent(key);
    return !key.defaultPrevented;
  };
  const cancel = (): boolean =>
    host.querySelector("dialog")?.dispatchEvent(new Event("cancel", { cancelable: true })) ?? false;
  write(host, "mine");
  expect([escape(), escape(), cancel()]).toEqual([false, false, false]);
  write(host, "first");
  expect([escape(), cancel()]).toEqual([true, true]);
});
