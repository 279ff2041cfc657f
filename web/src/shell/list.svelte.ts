/** A list of the service that is shown whole: its rows as they were read, without those that are being removed. */
import type { ApiError } from "../api/client";
import { Reading } from "../api/reading.svelte";
import { undoable } from "./undo.svelte";

interface Answer<T> {
  readonly data: readonly T[];
  readonly has_more: boolean;
}

export class ListStore<T> {
  private readonly reading: Reading<Answer<T>>;
  private removing = $state.raw<readonly T[]>([]);

  readonly rows: readonly T[] = $derived.by(() => {
    const hidden = new Set(this.removing.map(this.idOf));
    return (this.reading.value?.data ?? []).filter((row) => !hidden.has(this.idOf(row)));
  });

  constructor(
    load: (signal: AbortSignal) => Promise<Answer<T>>,
    private readonly idOf: (row: T) => string,
  ) {
    this.reading = new Reading(load);
  }

  get isRead(): boolean {
    return this.reading.isRead;
  }

  get hasMore(): boolean {
    return this.reading.value?.has_more ?? false;
  }

  get failure(): ApiError | null {
    return this.reading.failure;
  }

  /** Reads now. */
  read(): Promise<void> {
    return this.reading.read();
  }

  /** Reads soon: something has changed. */
  again(): void {
    this.reading.again();
  }

  close(): void {
    this.reading.close();
  }

  /** Removes rows, each by a request, unless it is undone. They are hidden from now on. `sentence` says what is done. */
  async remove(
    rows: readonly T[],
    sentence: string,
    request: (row: T, keepalive: boolean) => Promise<unknown>,
  ): Promise<void> {
    this.removing = [...this.removing, ...rows];
    const outcome = await undoable(sentence, (keepalive) =>
      Promise.all(rows.map((row) => request(row, keepalive))),
    );
    if (outcome !== "undone") await this.read(); // after a refusal too: some of them may be removed
    this.removing = this.removing.filter((row) => !rows.includes(row));
  }
}
