/** A connection to `v1/stream`: keeps its cursor, tries again, and says how it stands. Runs in a worker or a tab. */
import { url } from "../api/client";
import { sessionHeaders } from "../api/secret";
import type { JobSummary, LiveLine } from "../api/wire";
import type { Items, LiveStatus, Topic } from "./events";
import type { FromFeed, State, Wish } from "./messages";
import { readEvents, type ServerEvent } from "./sse";

export const MOST_JOBS = 50;
const JOIN_MS = 60; // wishes of components that appear together become one connection
const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 15_000;
const POLL_MS = 5_000;
const SILENCE_MS = 40_000; // the service sends a comment every 15 s

export class Feed {
  private cursor = new Map<string, number>();
  /** Jobs that are there no more: the service refuses a stream that names one. */
  private readonly gone = new Set<string>();
  private topics: readonly Topic[] = [];
  private connection: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private poll: ReturnType<typeof setInterval> | undefined;
  private silence: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;
  private state: State = { status: "connecting", retryIn: null };

  constructor(
    private readonly tell: (message: FromFeed) => void,
    private readonly request: typeof fetch = (...args) => fetch(...args),
  ) {}

  /** Asks for exactly this from now on. A job that is heard already goes on where it is. */
  ask(wish: Wish): void {
    const jobs = Object.entries(wish.jobs).filter(([id]) => !this.gone.has(id));
    const isSame =
      jobs.length === this.cursor.size &&
      jobs.every(([id]) => this.cursor.has(id)) &&
      wish.topics.length === this.topics.length &&
      wish.topics.every((topic) => this.topics.includes(topic));
    if (isSame && (this.connection || this.timer !== undefined)) return;
    this.cursor = new Map(jobs.map(([id, position]) => [id, this.cursor.get(id) ?? position]));
    this.topics = [...wish.topics];
    if (!isSame && this.state.status === "live") this.again(JOIN_MS);
    else if (this.timer === undefined) this.again(this.failures ? this.delay() : JOIN_MS);
  }

  /** Whether anything is asked for. */
  get isAsked(): boolean {
    return this.cursor.size > 0 || this.topics.length > 0;
  }

  /** Returns whether this connection has the job, or had it until it was gone. */
  hears(jobId: string): boolean {
    return this.cursor.has(jobId) || this.gone.has(jobId);
  }

  /** Takes these jobs for ones that are there: they may have been made or shared since. */
  welcome(jobIds: readonly string[]): void {
    for (const id of jobIds) this.gone.delete(id);
  }

  /** Tries at once. */
  retry(): void {
    this.failures = 0;
    this.again(0);
  }

  /** Returns how the connection stands. */
  now(): State {
    return this.state;
  }

  close(): void {
    this.drop();
    this.stopPolling();
  }

  private stopPolling(): void {
    clearInterval(this.poll);
    this.poll = undefined;
  }

  private drop(): void {
    clearTimeout(this.timer);
    clearTimeout(this.silence);
    this.timer = undefined;
    this.connection?.abort();
    this.connection = null;
  }

  private again(delay: number): void {
    this.drop();
    if (!this.isAsked) return this.stopPolling();
    this.timer = setTimeout(() => {
      this.timer = undefined;
      void this.connect();
    }, delay);
  }

  private async connect(): Promise<void> {
    const connection = new AbortController();
    this.connection = connection;
    const positions = new Map(this.cursor);
    let failure: LiveStatus = "lost";
    try {
      this.heard();
      const answer = await this.request(this.address(), {
        signal: connection.signal,
        credentials: "same-origin",
        headers: { accept: "text/event-stream", ...sessionHeaders() },
      });
      failure = "polling";
      if (answer.status === 401) {
        this.close();
        this.tell({ type: "signed-out" });
        return;
      }
      if (answer.status === 404 && (await this.leaveOut(connection.signal))) {
        if (this.connection === connection) this.again(0);
        return;
      }
      if (answer.ok && answer.body)
        await readEvents(
          answer.body,
          (event) => {
            if (this.connection === connection) this.take(event, positions);
          },
          () => this.heard(),
        );
    } catch {
      // Passed on below, unless we ended it ourselves.
    }
    if (this.connection !== connection) return;
    this.fail(failure);
  }

  /** Finds out which jobs are gone, and leaves them out. Returns whether there was one. */
  private async leaveOut(signal: AbortSignal): Promise<boolean> {
    const known = this.gone.size;
    for (const id of [...this.cursor.keys()]) {
      const answer = await this.request(url(`v1/jobs/${id}`), {
        signal,
        credentials: "same-origin",
        headers: sessionHeaders(),
      });
      if (answer.status !== 404) continue;
      this.gone.add(id);
      this.cursor.delete(id);
      this.tell({ type: "deleted", jobId: id });
    }
    return this.gone.size > known;
  }

  private address(): string {
    const after = [...this.cursor].map(([id, position]) => `${id}:${position}`).join(",");
    return url("v1/stream", { job: [...this.cursor.keys()], topic: this.topics, after: after || null });
  }

  private take(event: ServerEvent, positions: Map<string, number>): void {
    if (event.name === "ready") {
      const wasAway = this.poll !== undefined;
      this.failures = 0;
      this.show({ status: "live", retryIn: null });
      this.tell({ type: wasAway ? "missed" : "ready" });
      return;
    }
    const data = JSON.parse(event.data) as unknown;
    if (event.name === "items") this.takeItems(data as Items, positions);
    else if (event.name === "live") this.tell({ type: "line", line: data as LiveLine });
    else if (event.name === "job") this.tell({ type: "job", job: data as JobSummary });
    else if (event.name === "jobs") {
      const hint = data as { readonly job_id?: string; readonly deleted?: boolean };
      if (hint.deleted && hint.job_id) this.tell({ type: "deleted", jobId: hint.job_id });
      this.tell({ type: "changed", topic: "jobs" });
    } else if (event.name === "queue" || event.name === "workers")
      this.tell({ type: "changed", topic: event.name });
  }

  private takeItems(items: Items, positions: Map<string, number>): void {
    const from = positions.get(items.job_id);
    if (from === undefined || items.position <= from || !this.cursor.has(items.job_id)) return;
    positions.set(items.job_id, items.position);
    this.cursor.set(items.job_id, items.position);
    this.tell({ type: "items", from, items });
  }

  private heard(): void {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.fail("polling"), SILENCE_MS);
  }

  private fail(status: LiveStatus): void {
    this.failures += 1;
    const delay = this.delay();
    this.again(delay);
    this.show({ status, retryIn: delay });
  }

  /** Doubles with each failure; random, so that the browsers of a team do not come back at one moment. */
  private delay(): number {
    const most = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.failures);
    return Math.round(most * (0.5 + Math.random() / 2));
  }

  private show(state: State): void {
    this.state = state;
    this.tell({ type: "state", state });
    if (state.status === "live") this.stopPolling();
    else this.poll ??= setInterval(() => this.tell({ type: "missed" }), POLL_MS);
  }
}
