import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { SavedView } from "../../api/wire";
import { changesOf, click, removeAll, serve, settled, show, signIn, textOf, textsOf } from "../../testing";
import Views from "./Views.svelte";

beforeEach(() => void vi.useFakeTimers());
afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function view(owner: string, name: string, query: string): SavedView {
  return { owner, name, query, visibility: "team", updated_at: "2026-01-01T00:00:00Z" };
}

async function named(host: HTMLElement, name: string): Promise<void> {
  click(host, "save view");
  const field = host.querySelector<HTMLInputElement>("[aria-label='Name of the view']");
  if (!field) throw new Error("no field");
  field.value = name;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  host.querySelector<HTMLInputElement>("input[type=checkbox]")?.click();
  field.form?.dispatchEvent(new Event("submit", { bubbles: true, cancelable: true }));
  await settled();
}

test("a view keeps the address under a name for the team, and one's own stand before those of others", async () => {
  signIn("member", "jobs:read");
  let data = [view("ada", "mine", "q=mine"), view("eve", "hers", "q=hers")];
  const asked = serve(({ method, body }) => {
    if (method === "PUT") data = [{ ...(body as SavedView), owner: "ada" }, ...data];
    if (method === "DELETE") data = data.slice(1);
    return { data, has_more: false };
  });
  const host = show(Views, { query: "q=lr" });
  await settled();
  expect(textsOf(host, "optgroup option")).toEqual(["mine", "hers · eve"]);
  await named(host, " rates ");
  expect(changesOf(asked).map(({ method, body }) => [method, body])).toEqual([
    ["PUT", { name: "rates", query: "q=lr", visibility: "team" }],
  ]);
  click(host, "delete view");
  await settled();
  const [, removed] = changesOf(asked);
  expect(Object.fromEntries(removed?.query ?? [])).toEqual({ name: "rates", owner: "ada" });
  expect(textsOf(host, "button")).toEqual(["save view"]);
});

test("a view of the team's is forgotten by its owner alone, and a refusal is said and keeps what was typed", async () => {
  signIn("member", "jobs:read");
  serve(({ method }) =>
    method === "GET" ? { data: [view("eve", "hers", "q=hers")], has_more: false } : null,
  );
  const host = show(Views, { query: "q=hers" });
  await settled();
  expect(textsOf(host, "button")).toEqual([]);
  const other = show(Views, { query: "q=lr" });
  await settled();
  await named(other, "rates");
  flushSync();
  expect(textOf(other.querySelector("[role=alert]"))).toBe("There is none.");
  expect(other.querySelector<HTMLInputElement>("[aria-label='Name of the view']")?.value).toBe("rates");
});
