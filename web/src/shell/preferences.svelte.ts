/** What the page keeps on the service for who is signed in, under a name for each part of it. The address wins over it. */
import { get, post } from "../api/client";
import type { MeView } from "../api/wire";
import { session } from "./session.svelte";

type Values = Readonly<Record<string, unknown>>;

const WAIT_MS = 1_000;
const PATH = "v1/me/preferences";

/** What was changed in this tab, and by whom. */
let changed = $state.raw<{ readonly owner: string; readonly values: Values }>({ owner: "", values: {} });
/** The names whose values the service has not got yet. */
let unsent = new Set<string>();
let timer: ReturnType<typeof setTimeout> | undefined;

/** A preference. Reading it is reactive. All that is set within a second is sent in one request. */
export interface Preference<T> {
  value: T;
}

/**
 * Returns the preference of this name. `fallback` holds until one is set, and for each of its keys (of an object) that
 * is missing in what is kept or is of another kind there.
 */
export function preference<T>(name: string, fallback: T): Preference<T> {
  return {
    get value() {
      return fitting(valuesOf(session.me)[name], fallback);
    },
    set value(to: T) {
      const owner = session.me?.name;
      if (owner === undefined) return;
      if (owner !== changed.owner) unsent = new Set();
      const before = owner === changed.owner ? changed.values : {};
      changed = { owner, values: { ...before, [name]: to } };
      unsent.add(name);
      clearTimeout(timer);
      timer = setTimeout(() => void send(), WAIT_MS);
    },
  };
}

addEventListener("pagehide", sendNow);

/** Sends what waits: the page is being left. The request outlives it. */
function sendNow(): void {
  const { me } = session;
  if (unsent.size === 0 || !me || me.name !== changed.owner) return;
  clearTimeout(timer);
  unsent.clear();
  post(PATH, { preferences: valuesOf(me) }, "PUT", true).catch(() => undefined);
}

/** Puts what this tab has set into what the service has: another tab or browser may have set other names. */
async function send(): Promise<void> {
  const { owner, values } = changed;
  if (session.me?.name !== owner) return;
  const names = unsent;
  unsent = new Set();
  try {
    const { preferences } = await get<MeView>("v1/me", { preferences: true });
    const mine = Object.fromEntries(Object.entries(values).filter(([name]) => names.has(name)));
    await post(PATH, { preferences: { ...preferences, ...mine } }, "PUT");
  } catch {
    for (const name of names) unsent.add(name); // they go with the next change
  }
}

function valuesOf(me: MeView | null): Values {
  return { ...me?.preferences, ...(changed.owner === me?.name ? changed.values : {}) };
}

function fitting<T>(found: unknown, fallback: T): T {
  if (!isSameKind(found, fallback)) return fallback;
  if (!isObject(found) || !isObject(fallback)) return found as T;
  const wrong = Object.entries(fallback).filter(([key, value]) => !isSameKind(found[key], value));
  return { ...found, ...Object.fromEntries(wrong) } as T;
}

function isSameKind(one: unknown, other: unknown): boolean {
  return (
    typeof one === typeof other &&
    Array.isArray(one) === Array.isArray(other) &&
    isObject(one) === isObject(other)
  );
}

function isObject(value: unknown): value is Values {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
