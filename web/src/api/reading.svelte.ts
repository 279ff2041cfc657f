/** What was read from the service, read again as it changes: one request at a time, and not more than one a second. */
import { ApiError } from "./client";

const APART_MS = 1_000;

export class Reading<T> {
  /** The newest answer. It stays while a later one fails. */
  value = $state.raw<T | null>(null);
  /** Why the newest request failed. */
  failure = $state.raw<ApiError | null>(null);

  private isRunning = false;
  private isStale = false;
  private isClosed = false;
  private startedAt = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly load: () => Promise<T>) {}

  /** Reads, at once if it has not just been read. */
  again(): void {
    if (this.isRunning) this.isStale = true;
    else
      this.timer ??= setTimeout(() => void this.read(), Math.max(0, this.startedAt + APART_MS - Date.now()));
  }

  /** Reads no more. */
  close(): void {
    this.isClosed = true;
    clearTimeout(this.timer);
  }

  /** Reads now. */
  async read(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.isRunning = true;
    this.isStale = false;
    this.startedAt = Date.now();
    try {
      const value = await this.load();
      if (this.isClosed) return;
      this.value = value;
      this.failure = null;
    } catch (error) {
      if (this.isClosed) return;
      this.failure = error instanceof ApiError ? error : new ApiError(0, "unknown", String(error));
    } finally {
      this.isRunning = false;
    }
    if (this.isStale) this.again();
  }
}
