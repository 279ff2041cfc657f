/** The texts of a draft before and after the one that is shown: what takes changes back and makes them again. */
const MOST = 100;
const REST_MS = 1_000;

export class Past {
  private before: string[] = [];
  private after: string[] = [];
  private of = "";
  private at = 0;

  /** Notes the text that a change replaces. Changes of one place that follow without a rest are taken back together. */
  note(text: string, of: string): void {
    const isSame = this.of === of && Date.now() - this.at < REST_MS && this.before.length > 0;
    if (!isSame) this.before = [...this.before, text].slice(-MOST);
    this.after = [];
    [this.of, this.at] = [of, Date.now()];
  }

  /** Returns the text before the one that is given; null if there is none. */
  back(text: string): string | null {
    return this.move(text, this.before, this.after);
  }

  /** Returns the text that was taken back last; null if there is none. */
  forth(text: string): string | null {
    return this.move(text, this.after, this.before);
  }

  private move(text: string, from: string[], to: string[]): string | null {
    const found = from.pop();
    if (found === undefined) return null;
    to.push(text);
    this.of = "";
    return found;
  }
}
