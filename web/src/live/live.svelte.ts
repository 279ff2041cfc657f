/** The one store of live data of a tab: listeners say what they watch; each event reaches each once. */
import { secret } from "../api/secret";
import type { LiveEvent, LiveStatus, Topic, Watch } from "./events";
import { itemsBetween } from "./exact";
import { Hub, union } from "./hub";
import type { FromFeed, FromTab, Wish } from "./messages";

const FLUSH_MS = 250;
const ALIVE_MS = 30_000;

interface Listener {
  /** The position of each job up to which this listener has everything. */
  readonly positions: Map<string, number>;
  readonly topics: readonly Topic[];
  readonly listen: (event: LiveEvent) => void;
  /** Batches wait here while the part of an earlier one is read exactly. */
  waiting: Promise<void> | null;
}

type Items = Extract<FromFeed, { type: "items" }>;

export class Live {
  status = $state<LiveStatus>("connecting");
  /** Whether the page shows anything live. Without that there is no connection to tell of. */
  isWatching = $state(false);
  /** When the next try begins (ms since the epoch), while the stream does not work. */
  retryAt = $state<number | null>(null);

  private readonly listeners = new Set<Listener>();
  private send: ((message: FromTab) => void) | null = null;
  private queue: FromFeed[] = [];
  private flushedAt = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private alive: ReturnType<typeof setInterval> | undefined;
  private signedOut: () => void = () => undefined;

  /**
   * Calls `listener` with what happens from now on, at most four times a second, until the returned function is
   * called. Of a job it tells everything above the given position, exactly once.
   *
   * `changed` says that something may have been missed: read again, and watch anew with the new position. It comes
   * every 5 s while there is no connection, and after that; for topics, with each new connection.
   */
  watch(watch: Watch, listener: (event: LiveEvent) => void): () => void {
    const entry: Listener = {
      positions: new Map(Object.entries(watch.jobs ?? {})),
      topics: watch.topics ?? [],
      listen: listener,
      waiting: null,
    };
    this.listeners.add(entry);
    this.wish();
    return () => {
      this.listeners.delete(entry);
      this.wish();
    };
  }

  /** Connects. `signedOut` is called when the service does not know the session any more. */
  start(signedOut: () => void): void {
    this.signedOut = signedOut;
    this.send ??= shared((message) => this.received(message), this.connectAlone);
    this.alive ??= setInterval(() => this.send?.({ type: "alive" }), ALIVE_MS);
    addEventListener("pagehide", this.leave);
    addEventListener("pageshow", this.wish);
    this.introduce();
  }

  /** Wants nothing any more, until the next start. */
  stop(): void {
    removeEventListener("pagehide", this.leave);
    removeEventListener("pageshow", this.wish);
    clearInterval(this.alive);
    this.alive = undefined;
    this.leave();
  }

  /** Tries to connect at once. */
  retry(): void {
    this.send?.({ type: "retry" });
  }

  /** Connects without the other tabs: their worker could not be loaded. */
  private readonly connectAlone = (): void => {
    this.send = alone((message) => this.received(message));
    this.introduce();
  };

  /** Says whose session it is and what is wanted, and has the feed connect anew: it may have been another's. */
  private introduce(): void {
    this.send?.({ type: "session", secret: secret() });
    this.send?.({ type: "retry" });
    this.wish();
  }

  private readonly leave = (): void => this.send?.({ type: "leave" });

  private readonly wish = (): void => {
    this.isWatching = this.listeners.size > 0;
    const wishes = [...this.listeners].map((entry): Wish => ({
      jobs: Object.fromEntries(entry.positions),
      topics: entry.topics,
    }));
    this.send?.({ type: "wish", wish: union(wishes) });
  };

  private received(message: FromFeed): void {
    if (message.type === "state") {
      this.status = message.state.status;
      this.retryAt = message.state.retryIn === null ? null : Date.now() + message.state.retryIn;
      return;
    }
    if (message.type === "signed-out") {
      this.signedOut();
      return;
    }
    this.queue.push(message);
    this.timer ??= setTimeout(() => this.flush(), Math.max(0, this.flushedAt + FLUSH_MS - Date.now()));
  }

  private flush(): void {
    this.timer = undefined;
    this.flushedAt = Date.now();
    const messages = merged(this.queue);
    this.queue = [];
    for (const message of messages) for (const entry of [...this.listeners]) this.deliver(entry, message);
  }

  private deliver(entry: Listener, message: FromFeed): void {
    const all = entry.topics.includes("jobs");
    if (message.type === "items") this.deliverItems(entry, message);
    else if (message.type === "line") {
      if (entry.positions.has(message.line.job_id)) entry.listen({ kind: "line", line: message.line });
    } else if (message.type === "job") {
      if (all || entry.positions.has(message.job.id)) entry.listen({ kind: "job", job: message.job });
    } else if (message.type === "deleted") {
      if (all || entry.positions.has(message.jobId)) entry.listen({ kind: "deleted", jobId: message.jobId });
    } else if (message.type === "changed") {
      if (entry.topics.includes(message.topic)) entry.listen({ kind: "changed", topic: message.topic });
    } else if (message.type === "ready") {
      for (const topic of entry.topics) entry.listen({ kind: "changed", topic });
    } else if (message.type === "missed") {
      const topics = new Set(entry.positions.size > 0 ? ["jobs" as const, ...entry.topics] : entry.topics);
      for (const topic of topics) entry.listen({ kind: "changed", topic });
    }
  }

  private deliverItems(entry: Listener, message: Items): void {
    const { from, items } = message;
    const position = entry.positions.get(items.job_id);
    if (position === undefined) return;
    if (entry.waiting) {
      entry.waiting = entry.waiting.then(() => this.deliverNow(entry, message));
      return;
    }
    if (items.position <= position) return;
    if (from === position) {
      entry.positions.set(items.job_id, items.position);
      entry.listen({ kind: "items", items });
      return;
    }
    const waiting = this.deliverNow(entry, message).finally(() => {
      if (entry.waiting === waiting) entry.waiting = null;
    });
    entry.waiting = waiting;
  }

  /** Delivers the part of a batch that the listener does not have, or tells it to read again. */
  private async deliverNow(entry: Listener, { from, items }: Items): Promise<void> {
    const position = entry.positions.get(items.job_id);
    if (position === undefined || items.position <= position) return;
    try {
      const exact = from === position ? items : await itemsBetween(items.job_id, position, items.position);
      if (!this.listeners.has(entry)) return;
      entry.positions.set(items.job_id, items.position);
      entry.listen({ kind: "items", items: exact });
    } catch {
      if (this.listeners.has(entry)) entry.listen({ kind: "changed", topic: "jobs" });
    }
  }
}

export const live = new Live();

/** Connects with all tabs of the browser together, where that is possible. */
function shared(received: (message: FromFeed) => void, failed: () => void): (message: FromTab) => void {
  if (typeof SharedWorker === "undefined") return alone(received);
  const worker = new SharedWorker(new URL("./worker.ts", import.meta.url), { type: "module" });
  worker.port.onmessage = (event: MessageEvent<FromFeed>) => received(event.data);
  worker.onerror = failed;
  return (message) => worker.port.postMessage(message);
}

function alone(received: (message: FromFeed) => void): (message: FromTab) => void {
  const hub = new Hub<null>((_, message) => received(message));
  hub.join(null);
  return (message) => hub.take(null, message);
}

/** Keeps the newest of each job and line, and one hint of each kind; items stay in their order. */
function merged(messages: readonly FromFeed[]): FromFeed[] {
  const found = new Map<string, FromFeed>();
  for (const [index, message] of messages.entries()) {
    const key =
      message.type === "job"
        ? `job ${message.job.id}`
        : message.type === "items"
          ? `items ${index}`
          : message.type === "line"
            ? `line ${message.line.job_id} ${message.line.rank} ${message.line.stream}`
            : JSON.stringify(message);
    found.delete(key);
    found.set(key, message);
  }
  return [...found.values()];
}
