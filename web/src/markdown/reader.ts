/** Parses Markdown in a worker, within a limit of time. */
import type { Block } from "./tree";

/** Twice this: a page that is busy in the first half hears in the second what the worker has said meanwhile. */
const HALF_MS = 1_000;

/** What the worker says: that its program is loaded, and then of each text its blocks, or null if it cannot parse it. */
export type FromWorker = "loaded" | readonly Block[] | null;

export type Answer = (blocks: readonly Block[] | null) => void;

export class Reader {
  private worker: Worker | null = null;
  private isLoaded = false;
  /** Who waits for a text. */
  private answer: Answer | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** Answers with the blocks of a text, or null if it cannot be parsed in time. Who waits for a text before is not answered. */
  read(text: string, answer: Answer): void {
    if (this.answer) this.close();
    this.answer = answer;
    try {
      this.worker ??= this.started();
      this.worker.postMessage(text);
    } catch {
      return this.give(null); // the browser has no workers here
    }
    if (this.isLoaded) this.limit();
  }

  /** Ends the worker. Nobody is answered. */
  close(): void {
    clearTimeout(this.timer);
    if (this.worker) this.worker.onmessage = this.worker.onerror = null;
    this.worker?.terminate();
    this.worker = this.answer = null;
    this.isLoaded = false;
  }

  private started(): Worker {
    const worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }: MessageEvent<FromWorker>) => this.hear(data);
    worker.onerror = () => this.fail();
    return worker;
  }

  private hear(message: FromWorker): void {
    if (message !== "loaded") return this.give(message);
    this.isLoaded = true;
    this.limit();
  }

  /** Begins the time: loading the worker's program is no part of it. */
  private limit(): void {
    this.timer = setTimeout(() => (this.timer = setTimeout(() => this.fail(), HALF_MS)), HALF_MS);
  }

  private fail(): void {
    const { answer } = this;
    this.close();
    answer?.(null);
  }

  private give(blocks: readonly Block[] | null): void {
    clearTimeout(this.timer);
    const { answer } = this;
    this.answer = null;
    answer?.(blocks);
  }
}
