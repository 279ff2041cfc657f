/** What the page keeps on the service for who is signed in, under a name for each part of it. The address wins over it. */
import { get, post } from "../api/client";
import type { MeView } from "../api/wire";
import { session } from "./session.svelte";

type Values = Readonly<Record<string, unknown>>;

const WAIT_MS = 1_000;
const PATH = "v1/me/preferences";

/** What was changed in this tab, and by whom. */
let changed = $state.raw<{ readonly owner: string; readonly values: Values }>({ owner: "", values: {} });
type Edit = (value: unknown) => unknown;
/** What was done to values since the service got them, by their names. */
let unsent = new Map<string, readonly Edit[]>();
let timer: ReturnType<typeof setTimeout> | undefined;

/** A preference. Reading it is reactive. All that is set within a second is sent in one request. */
export interface Preference<T> {
  value: T;
  /** Changes the value, and the service's in the same way: another tab may have changed it, too. */
  change: (edit: (value: T) => T) => void;
}

/**
 * Returns the preference of this name. `fallback` holds until one is set, and for each of its keys (of an object) that
 * is missing in what is kept or is of another kind there.
 */
export function preference<T>(name: string, fallback: T): Preference<T> {
  function change(edit: (value: T) => T): void {
    const owner = session.me?.name;
    if (owner === undefined) return;
    if (owner !== changed.owner) unsent = new Map();
    const again: Edit = (value) => edit(fitting(value, fallback));
    keep(owner, { [name]: again(valuesOf(session.me)[name]) });
    unsent.set(name, [...(unsent.get(name) ?? []), again]);
    clearTimeout(timer);
    timer = setTimeout(() => void send(), WAIT_MS);
  }
  return {
    get value() {
      return fitting(valuesOf(session.me)[name], fallback);
    },
    set value(to: T) {
      unsent.delete(name);
      change(() => to);
    },
    change,
  };
}

addEventListener("pagehide", sendNow);

/** Sends the names that wait: the page is being left. The request outlives it. */
function sendNow(): void {
  const { me } = session;
  if (unsent.size === 0 || !me || me.name !== changed.owner) return;
  clearTimeout(timer);
  const values = valuesOf(me);
  const mine = Object.fromEntries([...unsent.keys()].map((name) => [name, values[name]]));
  unsent.clear();
  post(PATH, { preferences: mine }, "PATCH", true).catch(() => undefined);
}

/** Does to the service's values what was done in this tab: another tab or browser may have changed them, too. */
async function send(): Promise<void> {
  const { owner } = changed;
  if (session.me?.name !== owner) return;
  const sent = unsent;
  unsent = new Map();
  try {
    const { preferences } = await get<MeView>("v1/me", { preferences: true });
    const values: Values = preferences ?? {};
    const mine = Object.fromEntries(
      [...sent].map(([name, edits]) => [name, edits.reduce((value, edit) => edit(value), values[name])]),
    );
    await post(PATH, { preferences: mine }, "PATCH");
    if (owner === changed.owner)
      keep(owner, Object.fromEntries(Object.entries(mine).filter(([name]) => !unsent.has(name))));
  } catch {
    // They go with the next change.
    if (owner === changed.owner)
      for (const [name, edits] of sent) unsent.set(name, [...edits, ...(unsent.get(name) ?? [])]);
  }
}

function keep(owner: string, values: Values): void {
  changed = { owner, values: { ...(owner === changed.owner ? changed.values : {}), ...values } };
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
