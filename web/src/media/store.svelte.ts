/** What a job logged besides numbers: its keys, and the items of a key at a step, read once somebody looks at them. */
import type { MediaKey, MediaPage, MediaView } from "../api/wire";
import { type ApiError, failureOf, get } from "../api/client";
import { Reading } from "../api/reading.svelte";
import type { LiveEvent } from "../live/events";

const PAGE = 60;
const MOST_SHELVES = 200;

/** The items of one key at one step, in pages. */
export class Shelf {
  items = $state.raw<readonly MediaView[]>([]);
  hasMore = $state(false);
  failure = $state.raw<ApiError | null>(null);
  isRead = false;
  private running: Promise<void> | null = null;
  private next: string | null = null;

  constructor(
    readonly step: number,
    private readonly load: (after: string | null) => Promise<MediaPage>,
  ) {}

  /** Reads the first page, unless it is read. */
  async begin(): Promise<void> {
    if (!this.isRead) await this.extend();
  }

  /** Reads pages until this item is among them, or there is none. */
  async reach(number: number): Promise<void> {
    while (this.hasMore && !this.failure && !this.items.some((item) => item.number === number))
      await this.extend();
  }

  /** Reads the next page; all who ask meanwhile wait for the same one. */
  extend(): Promise<void> {
    this.running ??= this.read().finally(() => (this.running = null));
    return this.running;
  }

  private async read(): Promise<void> {
    try {
      const page = await this.load(this.next);
      this.items = [...this.items, ...page.data];
      [this.hasMore, this.next, this.failure, this.isRead] = [page.has_more, page.next ?? null, null, true];
    } catch (error) {
      this.failure = failureOf(error);
    }
  }
}

export class MediaStore {
  /** Grows when items that are shown may be others by now. */
  version = $state(0);
  private readonly path: string;
  private readonly reading: Reading<MediaPage>;
  private readonly shelves = new Map<string, Shelf>();

  constructor(readonly jobId: string) {
    this.path = `v1/jobs/${encodeURIComponent(jobId)}/media`;
    this.reading = new Reading(() => get<MediaPage>(this.path, { limit: 1 }));
  }

  get keys(): readonly MediaKey[] {
    return this.reading.value?.keys ?? [];
  }

  get isRead(): boolean {
    return this.reading.isRead;
  }

  get failure(): ApiError | null {
    return this.reading.failure;
  }

  /** Reads the keys. */
  read(): void {
    this.reading.again();
  }

  close(): void {
    this.reading.close();
  }

  /** Returns the items of a key at a step: those that are held, or a shelf that is not read yet. */
  shelf({ key, kind }: MediaKey, step: number): Shelf {
    const name = nameOf(key, step, kind);
    const query = { key, kind, from_step: step, to_step: step, keys: "false", limit: PAGE };
    const found =
      this.shelves.get(name) ?? new Shelf(step, (after) => get<MediaPage>(this.path, { ...query, after }));
    this.shelves.delete(name);
    this.shelves.set(name, found);
    const [oldest] = this.shelves.keys();
    if (this.shelves.size > MOST_SHELVES && oldest !== undefined) this.shelves.delete(oldest);
    return found;
  }

  /** Reads the items of a key from a step on, oldest first, a page at a time. */
  async *since({ key, kind }: MediaKey, step: number): AsyncGenerator<readonly MediaView[]> {
    let after: string | null = null;
    do {
      const query = { key, kind, from_step: step, keys: "false", limit: PAGE, after };
      const page: MediaPage = await get<MediaPage>(this.path, query);
      yield page.data;
      after = page.has_more ? (page.next ?? null) : null;
    } while (after !== null);
  }

  /** Takes what the stream tells. `changed`: something may have been missed. */
  heard(event: LiveEvent): void {
    if (event.kind === "changed") this.shelves.clear();
    else if (event.kind === "items" && event.items.job_id === this.jobId) {
      const logged = event.items.events.filter((item) => item.type === "media");
      if (logged.length === 0) return;
      for (const { data } of logged) this.forget(String(data["key"]), Number(data["step"]));
    } else return;
    this.version += 1;
    this.read();
  }

  private forget(key: string, step: number): void {
    for (const name of this.shelves.keys())
      if (name.startsWith(nameOf(key, step, ""))) this.shelves.delete(name);
  }
}

function nameOf(key: string, step: number, kind: string): string {
  return `${key}\n${step}\n${kind}`;
}
