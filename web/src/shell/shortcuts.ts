/** The keys of the page. Whoever is mounted offers its own; the help lists what is offered now. */

export interface Shortcut {
  /** As in "g n", "/" or "?": a key, or two in sequence. */
  readonly keys: string;
  readonly sentence: string;
  readonly run: (event: KeyboardEvent) => void;
}

/** The key of the palette, as its keyboard names it. */
export const OPEN_PALETTE = /Mac|iP(hone|ad|od)/.test(navigator.platform) ? "⌘K" : "Ctrl K";

const SEQUENCE_MS = 1_000;
const offered: Shortcut[] = [];
let first: { key: string; at: number } | null = null;

/** Offers keys until the returned function is called. The newest offer of a key counts. */
export function shortcut(keys: string, sentence: string, run: Shortcut["run"]): () => void {
  const entry = { keys, sentence, run };
  offered.push(entry);
  return () => {
    offered.splice(offered.indexOf(entry), 1);
  };
}

/** Returns what is offered now, the newest offer of each key. */
export function shortcuts(): readonly Shortcut[] {
  return [...new Map(offered.map((entry) => [entry.keys, entry])).values()];
}

/** Runs what a key asks for. For the window's `keydown`. */
export function pressed(event: KeyboardEvent): void {
  const isCommand = (event.metaKey || event.ctrlKey) && !event.altKey && event.key.toLowerCase() === "k";
  if (isCommand) return run(OPEN_PALETTE, event);
  if (event.metaKey || event.ctrlKey || event.altKey || event.defaultPrevented || isTyping(event.target))
    return;
  const sequence = first && Date.now() - first.at < SEQUENCE_MS ? `${first.key} ${event.key}` : null;
  first = null;
  if (sequence && shortcuts().some((entry) => entry.keys === sequence)) return run(sequence, event);
  if (shortcuts().some((entry) => entry.keys.startsWith(`${event.key} `)))
    first = { key: event.key, at: Date.now() };
  run(event.key, event);
}

function run(keys: string, event: KeyboardEvent): void {
  const found = offered.findLast((entry) => entry.keys === keys);
  if (!found) return;
  event.preventDefault();
  found.run(event);
}

/** Returns whether the key belongs to a field or to an open dialog. */
function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement && ["checkbox", "radio", "button", "range"].includes(target.type))
    return false;
  return target.isContentEditable || target.closest("input, textarea, select, dialog[open]") !== null;
}
