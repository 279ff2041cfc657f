/** The lines of a log that are held, as the page shows them: one change at a time. */
import { failureOf } from "../../../api/client";
import type { LogLine } from "../../../api/wire";
import { LogWindow, type ReadPage } from "./window";

export class LogLines {
  held = $state.raw<readonly LogLine[]>([]);
  /** The number of the job's last line. */
  total = $state(0);
  /** Why the newest request failed. */
  failure = $state.raw<string | null>(null);
  /** Whether a request has ended. */
  isLoaded = $state(false);

  private window: LogWindow;
  private isBusy = false;

  constructor(private readonly readPage: ReadPage) {
    this.window = new LogWindow(readPage);
  }

  get begins(): boolean {
    return this.window.begins;
  }

  get ends(): boolean {
    return this.window.ends;
  }

  /** Begins anew, as another filter is another log. What is held is shown until the first answer. */
  reset(): void {
    this.window = new LogWindow(this.readPage);
    this.isBusy = false;
  }

  /** Returns the index of the first held line numbered `line` or above, or the number of held lines. */
  indexOf(line: number): number {
    return this.window.indexOf(line);
  }

  /**
   * Changes what is held, and then returns what `work` returns: how many lines came before the first. Null if nothing was
   * changed: another change was on its way, or the request failed.
   */
  async change(work: (window: LogWindow) => Promise<number>): Promise<number | null> {
    if (this.isBusy) return null;
    const { window } = this;
    this.isBusy = true;
    try {
      const shift = await work(window);
      if (window !== this.window) return null;
      this.failure = null;
      this.show();
      return shift;
    } catch (error) {
      if (window === this.window) this.failure = failureOf(error).message;
      return null;
    } finally {
      if (window === this.window) {
        this.isBusy = false;
        this.isLoaded = true;
      }
    }
  }

  /** Adds what the job has just written, of which `last` is the last line; with `keeps`, no line is dropped for it. */
  add(lines: readonly LogLine[], last: number, keeps: boolean): void {
    this.window.addLive(lines, keeps);
    this.window.total = Math.max(this.window.total, last);
    this.show();
  }

  private show(): void {
    this.held = this.window.lines;
    this.total = this.window.total;
  }
}
