/** Shows components in tests, and answers their requests. */
import { flushSync, mount, unmount, type Component, type ComponentProps } from "svelte";
import { vi } from "vitest";
import type { MeView } from "./api/wire";
import { session } from "./shell/session.svelte";

/** A request that a component sent. */
export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly body: unknown;
}

const mounted: { shown: Record<string, unknown>; host: HTMLElement }[] = [];

/** Shows a component until `removeAll`. Returns the element that holds it. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- as Svelte's own mount
export function show<C extends Component<any>>(component: C, props: ComponentProps<C>): HTMLElement {
  document.dispatchEvent(new Event("visibilitychange")); // sets the page's clock: a test before may have moved it
  const host = document.createElement("main");
  document.body.append(host);
  mounted.push({ shown: mount(component, { target: host, props }), host });
  flushSync();
  return host;
}

/** Looks until `look` throws nothing. Finds what hangs, not what is slow beside other work. */
export function eventually<T>(look: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(look, 50_000);
}

/** Removes all that is shown, and signs out. */
export async function removeAll(): Promise<void> {
  for (const { shown, host } of mounted.splice(0)) {
    await unmount(shown);
    host.remove();
  }
  session.me = null;
  session.stage = "starting";
}

/** Answers requests with what `answer` returns for them; null is a 404. Returns the requests. */
export function serve(answer: (asked: Asked) => unknown): readonly Asked[] {
  const all: Asked[] = [];
  vi.stubGlobal("fetch", (target: string, { method = "GET", body }: RequestInit) => {
    const { pathname, searchParams } = new URL(target);
    const sent: unknown = typeof body === "string" ? JSON.parse(body) : undefined;
    const asked = { method, path: pathname.slice(1), query: searchParams, body: sent };
    all.push(asked);
    const found = answer(asked);
    if (found instanceof Blob) return Promise.resolve(new Response(found));
    const problem = { code: "not_found", detail: "There is none.", request_id: "req_1", errors: [] };
    return Promise.resolve(
      new Response(JSON.stringify(found ?? problem), { status: found === null ? 404 : 200 }),
    );
  });
  return all;
}

/** Returns the requests that change something: not those that only ask what a stop would cost. */
export function changesOf(all: readonly Asked[]): readonly Asked[] {
  return all.filter(({ method, query, body }) => {
    const isDry = query.has("dry_run") || (body as { dry_run?: boolean } | undefined)?.dry_run === true;
    return method !== "GET" && !isDry;
  });
}

/** Waits until what was asked is answered and shown. */
export async function settled(): Promise<void> {
  for (let i = 0; i < 30; i++) await Promise.resolve();
  flushSync();
}

export function signIn(role: MeView["role"], ...scopes: MeView["scopes"]): void {
  session.me = { name: "ada", role, scopes, token_id: null, preferences: {} };
  session.stage = "in";
}

/** Returns the text of an element as it is read: words with one space between them. */
export function textOf(element: Element | null | undefined): string {
  return (element?.textContent ?? "").replace(/\s+/g, " ").trim();
}

export function textsOf(host: Element, selector: string): readonly string[] {
  return [...host.querySelectorAll(selector)].map(textOf);
}

/** Clicks on the button or link with this text. Throws where there is none. */
export function click(host: Element, text: string): void {
  const found = [...host.querySelectorAll<HTMLElement>("button, a")].find((item) => textOf(item) === text);
  if (!found) throw new Error(`there is no ${text}: ${textsOf(host, "button, a").join(", ")}`);
  found.click();
  flushSync();
}
