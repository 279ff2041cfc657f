/** Changes that wait five seconds, so that they can be taken back before anything is sent. */
import { type ApiError, failureOf } from "../api/client";

const WAIT_MS = 5_000;

/** Sends the change. With `keepalive` the request must outlive the page. */
export type Run = (keepalive: boolean) => Promise<unknown>;

export interface Pending {
  readonly id: number;
  readonly sentence: string;
  /** What it would cost, as soon as that is known. Reactive. */
  readonly note: () => string | null;
  /** Null while it waits, else why it failed. */
  failure: ApiError | null;
}

interface Waiting {
  readonly run: Run;
  readonly settled: (outcome: "done" | "undone" | "failed") => void;
  readonly timer: ReturnType<typeof setTimeout>;
}

const waiting = new Map<number, Waiting>();
let shown = $state<Pending[]>([]);
let last = 0;

/** Returns what the bar shows, oldest first. Reactive. */
export function pending(): readonly Pending[] {
  return shown;
}

/**
 * Sends the change after five seconds, unless it is undone before; at once if the page is left.
 *
 * `sentence` says what happens: "Cancelling cracks-unet.", and `note` what that costs. Answers how it went. A failure is
 * shown in the bar.
 */
export function undoable(
  sentence: string,
  run: Run,
  note: () => string | null = () => null,
): Promise<"done" | "undone" | "failed"> {
  const id = ++last;
  shown.push({ id, sentence, note, failure: null });
  return new Promise((settled) => {
    waiting.set(id, { run, settled, timer: setTimeout(() => void send(id, false), WAIT_MS) });
  });
}

/** Takes the newest waiting change back, or the one of this id. */
export function undo(id = [...waiting.keys()].at(-1)): void {
  const entry = id === undefined ? undefined : waiting.get(id);
  if (!entry || id === undefined) return;
  clearTimeout(entry.timer);
  waiting.delete(id);
  dismiss(id);
  entry.settled("undone");
}

/** Removes a failure from the bar. */
export function dismiss(id: number): void {
  shown = shown.filter((item) => item.id !== id);
}

/** Sends all that waits: the page is being left. */
export function sendAll(): void {
  for (const id of [...waiting.keys()]) void send(id, true);
}

async function send(id: number, keepalive: boolean): Promise<void> {
  const entry = waiting.get(id);
  if (!entry) return;
  clearTimeout(entry.timer);
  waiting.delete(id);
  try {
    await entry.run(keepalive);
    dismiss(id);
    entry.settled("done");
  } catch (error) {
    const failure = failureOf(error);
    shown = shown.map((item) => (item.id === id ? { ...item, failure } : item));
    entry.settled("failed");
  }
}
