/** The lines of a log that the page holds: all that match the filter between two lines, without a gap. */
import type { LogLine } from "../../../api/wire";

/** Which lines are wanted. */
export interface LogFilter {
  readonly rank: number | null;
  readonly attempt: number | null;
  readonly launcher: boolean;
}

export const MOST_LINES = 20_000;
const PAGE = 500;

/** Reads one page: the lines after `after`, or the newest before `before`; oldest first. */
export type ReadPage = (place: { after?: number; before?: number; limit: number }) => Promise<LogPage>;

export interface LogPage {
  readonly lines: readonly LogLine[];
  /** The number of the job's last line. */
  readonly total: number;
}

export class LogWindow {
  lines: LogLine[] = [];
  total = 0;
  /** Whether there is no matching line before the first one, or after the last one. */
  begins = false;
  ends = false;

  /** How many pages are being read, and the lines that came live meanwhile: a page may be older than they are. */
  private reading = 0;
  private late: LogLine[] = [];

  constructor(private readonly readPage: ReadPage) {}

  /** Holds the last lines. */
  async showEnd(): Promise<void> {
    const page = await this.read({ before: Number.MAX_SAFE_INTEGER, limit: PAGE });
    this.replace(page.lines, page.total);
    this.begins = page.lines.length < PAGE;
    this.ends = true;
    this.addLate();
  }

  /** Holds the lines around `line`. */
  async showAround(line: number): Promise<void> {
    if (this.holds(line)) return;
    const [above, below] = await Promise.all([
      this.read({ before: line, limit: PAGE }),
      this.read({ after: line - 1, limit: PAGE }),
    ]);
    this.replace([...above.lines, ...below.lines], below.total);
    this.begins = above.lines.length < PAGE;
    this.ends = below.lines.length < PAGE;
    this.addLate();
  }

  /** Adds a page before the first line. Returns how many lines came. */
  async extendUp(): Promise<number> {
    const first = this.lines[0];
    if (this.begins || first === undefined) return 0;
    const page = await this.read({ before: first.line, limit: PAGE });
    if (this.lines[0] !== first) return 0; // another place was shown meanwhile
    this.begins = page.lines.length < PAGE;
    this.lines = [...page.lines, ...this.lines];
    if (this.lines.length > MOST_LINES) {
      this.lines.length = MOST_LINES;
      this.ends = false;
    }
    return page.lines.length;
  }

  /** Adds a page after the last line. Returns how many lines were dropped from the beginning. */
  async extendDown(): Promise<number> {
    const last = this.lines.at(-1);
    if (this.ends || last === undefined) return 0;
    const page = await this.read({ after: last.line, limit: PAGE });
    if (this.lines.at(-1) !== last) return 0;
    this.total = Math.max(this.total, page.total);
    this.ends = page.lines.length < PAGE;
    return this.append(page.lines) + this.addLate();
  }

  /** Adds a page that may have been missed after the last line of a window that ends there. Returns how many were dropped. */
  async catchUp(): Promise<number> {
    if (!this.ends) return 0;
    this.ends = false;
    try {
      return await this.extendDown();
    } catch (error) {
      this.ends = true; // the live lines go on where they were
      this.addLate();
      throw error;
    }
  }

  /**
   * Adds lines that the job has just written, if the window ends where they begin. Returns how many were dropped. With
   * `keeps`, none is dropped, as somebody reads them: the window ends before the new ones.
   */
  addLive(lines: readonly LogLine[], keeps = false): number {
    this.total = Math.max(this.total, lines.at(-1)?.line ?? 0);
    if (keeps && this.lines.length + lines.length > MOST_LINES) this.ends = false;
    if (this.reading > 0) this.late.push(...lines);
    const last = this.lines.at(-1)?.line ?? 0;
    return this.ends ? this.append(lines.filter((line) => line.line > last)) : 0;
  }

  /** Returns the index of the first held line numbered `line` or above, or the number of held lines. */
  indexOf(line: number): number {
    let low = 0;
    let high = this.lines.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.lines[middle]?.line ?? 0) < line) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  private holds(line: number): boolean {
    const first = this.lines[0];
    const last = this.lines.at(-1);
    if (first === undefined || last === undefined) return false;
    return (this.begins || first.line <= line) && (this.ends || last.line >= line);
  }

  private async read(place: Parameters<ReadPage>[0]): Promise<LogPage> {
    if (this.reading === 0) this.late = [];
    this.reading += 1;
    try {
      return await this.readPage(place);
    } finally {
      this.reading -= 1;
    }
  }

  /** Adds what came live while the page was read that ends the window. */
  private addLate(): number {
    const last = this.lines.at(-1)?.line ?? 0;
    return this.ends ? this.append(this.late.filter((line) => line.line > last)) : 0;
  }

  private replace(lines: readonly LogLine[], total: number): void {
    this.lines = [...lines];
    this.total = Math.max(this.total, total);
  }

  private append(lines: readonly LogLine[]): number {
    this.lines = [...this.lines, ...lines];
    const dropped = Math.max(this.lines.length - MOST_LINES, 0);
    if (dropped) {
      this.lines = this.lines.slice(dropped);
      this.begins = false;
    }
    return dropped;
  }
}
