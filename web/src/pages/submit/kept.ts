/** Drafts that are not submitted yet, by what they began with. A draft with values of environment variables is not stored: those may be secrets. */
import { BASE } from "../../base";

const KEY = `torchyard-draft ${BASE.pathname}`;
const inMemory = new Map<string, string>();

/** Keeps a draft. `stored`: over a reload, too; else only until the tab is closed or loaded again. */
export function keep(origin: string, text: string, { stored }: { stored: boolean }): void {
  inMemory.set(origin, text);
  try {
    if (stored) sessionStorage.setItem(`${KEY} ${origin}`, text);
    else sessionStorage.removeItem(`${KEY} ${origin}`);
  } catch {
    // A browser that stores nothing has it until the tab is loaded again.
  }
}

export function kept(origin: string): string | null {
  const known = inMemory.get(origin);
  if (known !== undefined) return known;
  try {
    return sessionStorage.getItem(`${KEY} ${origin}`);
  } catch {
    return null;
  }
}

export function forget(origin: string): void {
  inMemory.delete(origin);
  try {
    sessionStorage.removeItem(`${KEY} ${origin}`);
  } catch {
    // Nothing is stored.
  }
}
