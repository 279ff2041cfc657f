/** The page Submit in tests, at a service that knows the schemas and answers all else as the test says. */
import { flushSync } from "svelte";
import { vi } from "vitest";
import { href, navigate } from "../../router.svelte";
import { schemas } from "../../specs/testing";
import { removeAll, serve, settled, show, signIn, textOf, type Asked } from "../../testing";
import { forget } from "./kept";
import Submit from "./Submit.svelte";

export const JOB = "job_0197f3c2a9b47c1e8d20f6b1c4e5a703";
export const FITS = { spec: {}, waits_for: { fits: true, code: null, message: null, position: 1 } };

export const service: { answer: (asked: Asked) => unknown; bundles: readonly unknown[] } = {
  answer: () => FITS,
  bundles: [],
};

/** For `beforeEach`. */
export function begin(): void {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  vi.stubGlobal("scrollTo", () => undefined);
  signIn("member", "jobs:read", "jobs:write", "secrets");
  service.answer = (asked) => (asked.path === "v1/jobs/validate" ? FITS : null);
  service.bundles = [];
  navigate(href("submit"));
}

/** For `afterEach`. */
export async function end(): Promise<void> {
  for (const origin of ["", JOB]) forget(origin);
  await removeAll();
  vi.useRealTimers();
  vi.unstubAllGlobals();
  navigate(href(""));
}

export async function open(): Promise<{ host: HTMLElement; asked: readonly Asked[] }> {
  const asked = serve((each) => {
    if (each.path === "v1/spec/schema") return each.query.get("of") === "sweep" ? schemas.sweep : schemas.job;
    if (each.path === "v1/secrets") return { data: [{ name: "HF" }] };
    if (each.path === "v1/bundles") return { data: service.bundles };
    return service.answer(each);
  });
  const host = show(Submit, {});
  await settled();
  return { host, asked };
}

export function yamlOf(host: HTMLElement): HTMLTextAreaElement {
  return field<HTMLTextAreaElement>(host, "yaml");
}

export function field<T extends HTMLElement = HTMLInputElement>(host: HTMLElement, id: string): T {
  const found = host.querySelector<T>(`[id="${id}"]`);
  if (!found) throw new Error(`there is no ${id}`);
  return found;
}

/** Opens or closes the panel of a field. Returns what one chooses among. */
export async function panelOf(host: HTMLElement, id: string): Promise<readonly HTMLElement[]> {
  const chooser = field(host, id).closest(".chooser");
  chooser?.querySelector<HTMLElement>("[aria-expanded]")?.click();
  flushSync();
  await settled();
  return [...(chooser?.querySelectorAll<HTMLElement>(".panel li button") ?? [])];
}

export function type(into: HTMLInputElement | HTMLTextAreaElement, text: string): void {
  into.value = text;
  into.dispatchEvent(new Event("input", { bubbles: true }));
  flushSync();
}

export function unfold(host: HTMLElement, section: string): void {
  host.querySelectorAll("summary").forEach((summary) => {
    if (textOf(summary).startsWith(section)) summary.parentElement?.setAttribute("open", "");
    summary.parentElement?.dispatchEvent(new Event("toggle"));
  });
  flushSync();
}

export async function checked(): Promise<void> {
  await vi.advanceTimersByTimeAsync(300);
  await settled();
}

export async function pressCtrlEnter(): Promise<void> {
  window.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", ctrlKey: true }));
  await settled();
}
