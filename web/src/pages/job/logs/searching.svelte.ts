/** The search of one log: what it has found, and whether it goes on. */
import { failureOf, get, type Query } from "../../../api/client";
import { NOTHING, search, type Found, type SearchPage } from "./search";

/** Between two searches of what the job has written. */
const GROWTH_MS = 1000;
const PAGE = 1000;

export class Searching {
  found = $state.raw<Found>(NOTHING);
  /** Why the newest request failed. */
  failure = $state.raw<string | null>(null);

  private request = $state.raw<AbortController | null>(null);
  private query: Query | null = null;
  private growth: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly jobId: string) {}

  get isRunning(): boolean {
    return this.request !== null;
  }

  /** Searches the log from its beginning for something else; null: for nothing. */
  begin(query: Query | null): void {
    this.query = query;
    this.failure = null;
    this.found = NOTHING;
    this.goOn();
  }

  /** Searches behind what was searched before. */
  goOn(): void {
    this.stop();
    if (this.query !== null)
      void this.run({ ...this.query, limit: PAGE }, (this.request = new AbortController()));
  }

  /** Ends the search where it is. */
  stop(): void {
    clearTimeout(this.growth);
    this.growth = undefined;
    this.request?.abort();
    this.request = null;
  }

  /** Searches what the job has written since, if all before it is searched. */
  grew(): void {
    if (this.query === null || !this.found.isWhole) return;
    this.growth ??= setTimeout(() => {
      this.growth = undefined;
      if (this.found.isWhole && !this.isRunning) this.goOn();
    }, GROWTH_MS);
  }

  private async run(query: Query, request: AbortController): Promise<void> {
    const path = `v1/jobs/${this.jobId}/logs/search`;
    const read = (after: string): Promise<SearchPage> =>
      get<SearchPage>(path, { ...query, after }, request.signal);
    try {
      for await (const found of search(read, this.found)) {
        if (request.signal.aborted) return;
        this.found = found;
      }
      this.failure = null;
    } catch (error) {
      if (!request.signal.aborted) this.failure = failureOf(error).message;
    } finally {
      if (this.request === request) this.request = null;
    }
  }
}
