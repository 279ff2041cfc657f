/** Drafts that are not submitted yet, by what they began with. A draft with values of environment variables is not stored: those may be secrets. */
import { BASE } from "../../base";
import { session } from "../../shell/session.svelte";

const inMemory = new Map<string, string>();

/** Keeps a draft. `stored`: over a reload, too; else only until the tab is closed or loaded again. */
export function keep(origin: string, text: string, { stored }: { stored: boolean }): void {
  inMemory.set(key(origin), text);
  try {
    if (stored) sessionStorage.setItem(key(origin), text);
    else sessionStorage.removeItem(key(origin));
  } catch {
    // A browser that stores nothing has it until the tab is loaded again.
  }
}

export function kept(origin: string): string | null {
  const known = inMemory.get(key(origin));
  if (known !== undefined) return known;
  try {
    return sessionStorage.getItem(key(origin));
  } catch {
    return null;
  }
}

export function forget(origin: string): void {
  inMemory.delete(key(origin));
  try {
    sessionStorage.removeItem(key(origin));
  } catch {
    // Nothing is stored.
  }
}

/** Whoever signs in next in this tab has drafts of their own. */
function key(origin: string): string {
  return `torchyard-draft ${BASE.pathname} ${session.me?.name ?? ""} ${origin}`;
}
