/**
 * The second secret of the session. It is kept in the storage of this origin, which another port of the host cannot
 * read; alone it opens nothing, as it is good with the cookie only, which no script can read.
 */
import { BASE } from "../base";

const KEY = `torchyard-session ${BASE.pathname}`;

let held: string | null = null;

/** Returns the headers that each request sends: the cookie alone opens nothing. */
export function sessionHeaders(): Record<string, string> {
  return held === null ? {} : { "x-csrf-token": held };
}

/** Returns the secret that the requests of this tab send. */
export function secret(): string | null {
  return held;
}

/** Has the requests of this tab, or of this worker, send the secret. */
export function hold(value: string | null): void {
  held = value;
}

/** Returns what this browser keeps, maybe of another tab. */
export function kept(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // a browser that stores nothing asks for a login each time
  }
}

/** Holds the secret of a new session, and keeps it for other tabs and later visits. */
export function keep(value: string): void {
  hold(value);
  try {
    localStorage.setItem(KEY, value);
  } catch {
    // This tab holds it until it is closed.
  }
}

/** Forgets the secret of a session that has ended, and not the one of a newer session. */
export function forget(): void {
  try {
    if (kept() === held) localStorage.removeItem(KEY);
  } catch {
    // Nothing is kept.
  }
  hold(null);
}
