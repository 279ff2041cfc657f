/** Which lines of a log can be seen: it follows the end until somebody scrolls up. */
import { tick } from "svelte";
import type { LogLine } from "../../../api/wire";
import type { LogLines } from "./lines.svelte";
import { heightOf, ROW, Scrollbar, type Extent } from "./scrollbar";
import { firstOfLast } from "./wrap";

/** Nearer to an end of what is held, more lines are read. */
const EDGE = 100;

export class Scrolling {
  /** The index of the first line that can be seen, in what is listed. */
  top = $state(0);
  isFollowing = $state(true);
  /** Lines that came since nobody follows. */
  fresh = $state(0);
  /** Pixels of the view. */
  viewport = $state(400);
  /** Characters of a row where long lines go on below; null where they go on to the right. */
  columns = $state<number | null>(null);

  readonly rows = $derived(Math.max(Math.floor(this.viewport / ROW), 1));
  readonly scrollbar = new Scrollbar();
  private isClosed = false;

  constructor(
    readonly lines: LogLines,
    /** Returns the matches, while they alone are listed, else null. */
    readonly matches: () => readonly LogLine[] | null,
  ) {}

  /** Takes no more answers: nobody looks at the log. */
  close(): void {
    this.isClosed = true;
    this.lines.reset();
  }

  /** Returns what can be scrolled without a request. */
  get listed(): readonly LogLine[] {
    return this.matches() ?? this.lines.held;
  }

  get shown(): readonly LogLine[] {
    return this.listed.slice(this.top, this.top + this.rows + 1);
  }

  /** Returns the pixels that stand for all that is listed, and for what could be. */
  get height(): number {
    return heightOf(this.extent.length);
  }

  /** Shows the end, and follows it. */
  async toEnd(): Promise<void> {
    this.isFollowing = true;
    this.fresh = 0;
    const done = await this.lines.change(async (window) => {
      if (!window.ends) await window.showEnd();
      return 0;
    });
    if (done !== null) this.top = this.clamp(Infinity);
    this.place();
  }

  /** Shows the line of a number, with some before it. */
  async toLine(line: number): Promise<void> {
    await this.showAround(line, Math.floor(this.rows / 3));
    this.place();
  }

  /** Shows the entry of an index, with some before it. */
  toIndex(index: number): void {
    this.top = this.clamp(index - Math.floor(this.rows / 3));
  }

  /** Shows the end of what is listed now, if somebody follows it, or else the entry of an index; null: what is there. */
  toListed(index: number | null): void {
    if (this.isFollowing) this.top = this.clamp(Infinity);
    else if (index !== null) this.toIndex(index);
    else this.top = this.clamp(this.top);
    this.place();
  }

  /** Moves by rows. At an edge of what is held, more lines are read. */
  move(by: number): void {
    const next = this.clamp(this.top + by);
    if (by < 0 && next !== this.top) this.isFollowing = false;
    this.top = next;
    const isWhole = this.matches() === null;
    const below = this.lastTop;
    if (isWhole && this.lines.ends && this.top >= below) {
      this.isFollowing = true;
      this.fresh = 0;
    }
    this.place();
    if (!isWhole) return;
    if (by < 0 && this.top < EDGE && !this.lines.begins) void this.extend((window) => window.extendUp());
    if (by > 0 && this.top > below - EDGE && !this.lines.ends)
      void this.extend(async (window) => -(await window.extendDown()));
  }

  /** Follows the scrollbar when a person drags it, or a touch. */
  dragged(): void {
    const first = this.scrollbar.dragged(this.extent);
    if (first === null) return;
    if (this.matches()) {
      this.top = this.clamp(first);
      return;
    }
    this.isFollowing = false;
    const index = this.lines.indexOf(first + 1);
    if (index > 0 && index < this.lastTop) this.top = index;
    else void this.showAround(first + 1, 0);
  }

  /** Takes what the job has just written: all that is to be shown of it, and the number of its last line. */
  grew(lines: readonly LogLine[], last: number): void {
    const before = this.lines.total;
    this.lines.add(lines, last, !this.isFollowing);
    if (this.matches()) return;
    if (!this.isFollowing) this.fresh += lines.filter((line) => line.line > before).length;
    else {
      this.top = this.clamp(Infinity);
      this.place();
    }
  }

  /** Reads what came while the stream was interrupted. */
  async catchUp(): Promise<void> {
    await this.extend(async (window) => {
      const dropped = await window.catchUp();
      if (this.isFollowing && !window.ends) await window.showEnd();
      return -dropped;
    });
    if (this.isClosed) return;
    if (this.isFollowing) this.top = this.clamp(Infinity);
    this.place();
  }

  /** Puts the scrollbar where the first visible line is in the whole log. */
  place(): void {
    void tick().then(() => {
      if (this.isClosed) return;
      const first = this.matches() ? this.top : (this.lines.held[this.top]?.line ?? 1) - 1;
      this.scrollbar.place(first, this.extent);
    });
  }

  private get extent(): Extent {
    const { total, held } = this.lines;
    const length = this.matches()?.length ?? Math.max(total, held.length);
    return { length, rows: this.rows, viewport: this.viewport };
  }

  private async showAround(line: number, above: number): Promise<void> {
    this.isFollowing = false;
    const done = await this.lines.change(async (window) => {
      await window.showAround(line);
      return 0;
    });
    if (done !== null) this.top = this.clamp(this.lines.indexOf(line) - above);
  }

  /** Keeps the first visible line where it is. */
  private async extend(work: Parameters<LogLines["change"]>[0]): Promise<void> {
    const shift = await this.lines.change(work);
    if (shift !== null && !this.matches()) this.top = Math.max(0, this.top + shift);
  }

  private clamp(index: number): number {
    return Math.max(0, Math.min(index, this.lastTop));
  }

  /** The index of the first visible line while the last one is visible. */
  private get lastTop(): number {
    const { listed, rows, columns } = this;
    return columns === null ? listed.length - rows : firstOfLast(listed, rows, columns);
  }
}
