/** What was read from the service, read again as it changes: not all too often, and the newest request counts. */
import { type ApiError, failureOf } from "./client";
import { NewestRequest } from "./newest";

const APART_MS = 1_000;

export class Reading<T> {
  /** The newest answer. It stays while a later one fails. */
  value = $state.raw<T | null>(null);
  /** Why the newest request failed. */
  failure = $state.raw<ApiError | null>(null);

  private readonly newest = new NewestRequest();
  private isRunning = false;
  private isStale = false;
  private startedAt = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** `apartMs`: the least time between the beginnings of two requests. */
  constructor(
    private readonly load: (signal: AbortSignal) => Promise<T>,
    private readonly apartMs = APART_MS,
  ) {}

  get isRead(): boolean {
    return this.value !== null;
  }

  /** Reads, at once if it has not just been read; after the request that is running, if there is one. */
  again(): void {
    if (this.isRunning) this.isStale = true;
    else
      this.timer ??= setTimeout(
        () => void this.read(),
        Math.max(0, this.startedAt + this.apartMs - Date.now()),
      );
  }

  /** Reads no more. */
  close(): void {
    this.newest.end();
    this.isRunning = false;
    this.isStale = false;
    clearTimeout(this.timer);
  }

  /** Reads now, in place of a request that is running: it may have been answered before a change. */
  async read(): Promise<void> {
    const signal = this.newest.begin();
    clearTimeout(this.timer);
    this.timer = undefined;
    this.isRunning = true;
    this.isStale = false;
    this.startedAt = Date.now();
    try {
      const value = await this.load(signal);
      if (signal.aborted) return;
      this.value = value;
      this.failure = null;
    } catch (error) {
      if (signal.aborted) return;
      this.failure = failureOf(error);
    }
    this.isRunning = false;
    if (this.isStale) this.again();
  }
}
