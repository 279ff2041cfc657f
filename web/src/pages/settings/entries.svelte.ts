/** The audit as it is searched: page after page, until enough is found or nothing older can match. */
import { type ApiError, failureOf, get } from "../../api/client";
import type { AuditView, Page } from "../../api/wire";

const PAGE = 100;
/** Requests without a match, each of which looks at many entries, after which the search waits until one has it go on. */
const MOST_EMPTY = 10;

export type Filter = Readonly<Record<"who" | "action" | "object" | "outcome" | "from" | "to", string | null>>;

export class Entries {
  found = $state.raw<readonly AuditView[]>([]);
  /** Where the search goes on; null: nothing more can match. */
  next = $state<string | null>(null);
  isReading = $state(false);
  failure = $state.raw<ApiError | null>(null);

  private filter: Filter | null = null;

  /** Begins anew. */
  async search(filter: Filter): Promise<void> {
    this.filter = filter;
    this.found = [];
    this.next = null;
    await this.more();
  }

  /** Reads older ones, at least one if there is any. */
  async more(): Promise<void> {
    const { filter } = this;
    this.isReading = true;
    try {
      for (let empty = 0; empty < MOST_EMPTY; empty++) {
        const page = await get<Page<AuditView>>("v1/audit", { ...filter, limit: PAGE, after: this.next });
        if (filter !== this.filter) return; // another search has begun
        this.found = [...this.found, ...page.data];
        this.next = page.next;
        this.failure = null;
        if (page.data.length > 0 || page.next === null) break;
      }
    } catch (error) {
      if (filter === this.filter) this.failure = failureOf(error);
    } finally {
      if (filter === this.filter) this.isReading = false;
    }
  }

  /** Ends what is read. */
  close(): void {
    this.filter = null;
  }
}
