/** The connections of a browser. A stream has up to 50 jobs, so more of them are shared out among a few streams. */
import { Feed, MOST_JOBS } from "./feed";
import type { LiveStatus, Topic } from "./events";
import type { FromFeed, State, Wish } from "./messages";

const MOST_FEEDS = 4; // HTTP/1.1 allows a browser six connections: two are left for requests
const UNHEARD_MS = 5_000;
const WORST: readonly LiveStatus[] = ["lost", "polling", "connecting", "live"];

export class Feeds {
  private readonly all: readonly Feed[];
  private state: State = { status: "connecting", retryIn: null };
  private poll: ReturnType<typeof setInterval> | undefined;

  constructor(
    private readonly tell: (message: FromFeed) => void,
    request?: typeof fetch,
  ) {
    this.all = Array.from(
      { length: MOST_FEEDS },
      (_, at) => new Feed((message) => this.received(message, at), request),
    );
  }

  /** Asks for exactly this from now on. `added` are jobs that somebody asks for anew, also if they were gone. */
  ask(wish: Wish, added: readonly string[] = []): void {
    for (const feed of this.all) feed.welcome(added);
    const parts = this.shareOut(Object.entries(wish.jobs));
    for (const [at, feed] of this.all.entries())
      feed.ask({ jobs: Object.fromEntries(parts[at] ?? []), topics: topicsOf(wish, at) });
    this.readUnheard(Object.keys(wish.jobs).length > MOST_FEEDS * MOST_JOBS);
  }

  /** Tries at once. */
  retry(): void {
    for (const feed of this.all) feed.retry();
  }

  /** Returns how the connections stand: as the worst of them. */
  now(): State {
    return this.state;
  }

  /** A job stays with the stream that has it. What has no place in any is not heard. */
  private shareOut(jobs: readonly [string, number][]): readonly [string, number][][] {
    const parts = this.all.map((feed) => jobs.filter(([id]) => feed.hears(id)));
    const heard = new Set(parts.flat().map(([id]) => id));
    for (const job of jobs) if (!heard.has(job[0])) parts.find((part) => part.length < MOST_JOBS)?.push(job);
    return parts;
  }

  /** Has the lists and curves read again and again, while there are jobs that no stream has. */
  private readUnheard(isNeeded: boolean): void {
    if (isNeeded) this.poll ??= setInterval(() => this.tell({ type: "missed" }), UNHEARD_MS);
    else {
      clearInterval(this.poll);
      this.poll = undefined;
    }
  }

  private received(message: FromFeed, at: number): void {
    if (message.type === "ready" && at > 0) return; // it is for those who watch lists, which the first stream has
    if (message.type !== "state") return this.tell(message);
    const states = this.all.filter((feed) => feed.isAsked).map((feed) => feed.now());
    const state = WORST.flatMap((status) => states.find((each) => each.status === status) ?? [])[0];
    this.state = state ?? message.state;
    this.tell({ type: "state", state: this.state });
  }
}

/** Lists are watched by the first stream alone. */
function topicsOf(wish: Wish, at: number): readonly Topic[] {
  return at === 0 ? wish.topics : [];
}
