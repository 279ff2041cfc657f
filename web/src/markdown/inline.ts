/** Reads the text of a block, in a time that grows with its length: as a row of parts first, then as a tree. */
import { pair, runOf, type Run } from "./emphasis";
import { addressAfter, bareAddress, target } from "./links";
import { treeOf, type Bracket, type Part } from "./parts";
import type { Inline } from "./tree";

const PLAIN = /[^\\`*_~[\]!<\nh]+/y;
const ESCAPED = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}]/u;

export function inlinesOf(text: string): readonly Inline[] {
  return treeOf(new Reader(text).parts());
}

class Reader {
  private readonly found: Part[] = [];
  private readonly runs: Run[] = [];
  /** Those that are open, each with the number of runs before it. */
  private readonly brackets: { readonly bracket: Bracket; readonly runs: number }[] = [];
  /** So many of the open ones have a link, or a picture, within them, and so are none. */
  private readonly spent: Record<string, number> = { "[": 0, "![": 0 };
  /** The places of runs of backticks, by their length, the first last. */
  private readonly ticks = new Map<number, number[]>();
  private at = 0;

  constructor(private readonly text: string) {
    const all = [...text.matchAll(/`+/g)].reverse();
    for (const {
      0: { length },
      index,
    } of all) {
      const places = this.ticks.get(length);
      if (places) places.push(index);
      else this.ticks.set(length, [index]);
    }
  }

  parts(): readonly Part[] {
    while (this.at < this.text.length) {
      PLAIN.lastIndex = this.at;
      const plain = PLAIN.exec(this.text)?.[0];
      if (plain === undefined) this.special(this.text[this.at] ?? "");
      else this.say(plain.length);
    }
    pair(this.runs);
    return this.found;
  }

  private special(sign: string): void {
    if (sign === "\\") this.escape();
    else if (sign === "`") this.code();
    else if ("*_~".includes(sign)) this.run(sign);
    else if (sign === "[" || (sign === "!" && this.text[this.at + 1] === "[")) this.open(sign);
    else if (sign === "]") this.close();
    else if (sign === "<" || sign === "h") this.address();
    else if (sign === "\n") this.newline();
    else this.say(1);
  }

  /** Takes so many characters as text. */
  private say(length: number): void {
    this.found.push({ kind: "text", text: this.text.slice(this.at, this.at + length) });
    this.at += length;
  }

  private escape(): void {
    const next = this.text[this.at + 1] ?? "";
    if (next === "\n") this.found.push({ kind: "break" });
    if (!ESCAPED.test(next) && next !== "\n") return this.say(1);
    this.at += 1;
    return next === "\n" ? void (this.at += 1) : this.say(1);
  }

  private code(): void {
    let end = this.at;
    while (this.text[end] === "`") end += 1;
    const length = end - this.at;
    const places = this.ticks.get(length) ?? [];
    while ((places.at(-1) ?? Infinity) < end) places.pop();
    const close = places.at(-1);
    if (close === undefined) return this.say(length);
    const text = this.text.slice(end, close).replaceAll("\n", " ");
    const isPadded = text.startsWith(" ") && text.endsWith(" ") && text.trim() !== "";
    this.found.push({ kind: "code", text: isPadded ? text.slice(1, -1) : text });
    this.at = close + length;
  }

  private run(sign: string): void {
    const start = this.at;
    while (this.text[this.at] === sign) this.at += 1;
    const run = runOf(sign, this.at - start, this.before(start), this.after(this.at));
    this.runs.push(run);
    this.found.push({ kind: "run", run });
  }

  private open(sign: string): void {
    const bracket: Bracket = { text: sign === "!" ? "![" : "[", href: null };
    this.brackets.push({ bracket, runs: this.runs.length });
    this.found.push({ kind: "open", bracket });
    this.at += bracket.text.length;
  }

  /** Ends a link, or a picture, which is a link too: no other server hears who reads. */
  private close(): void {
    const last = this.brackets.pop();
    const left = this.brackets.length;
    const isSpent = last === undefined || left < (this.spent[last.bracket.text] ?? 0);
    for (const kind of ["[", "!["]) this.spent[kind] = Math.min(this.spent[kind] ?? 0, left);
    const place = isSpent ? null : addressAfter(this.text, this.at + 1);
    const href = place && target(place.href);
    if (!last || !place || href === null) return this.say(1);
    last.bracket.href = href;
    pair(this.runs.splice(last.runs));
    this.spent[last.bracket.text] = left;
    this.found.push({ kind: "close" });
    this.at = place.end;
  }

  private address(): void {
    const place = WORD.test(this.before(this.at)) ? null : bareAddress(this.text, this.at);
    if (place === null) return this.say(1);
    const href = target(place.href);
    if (href === null) return this.say(place.end - this.at);
    const bracket = { text: "", href };
    this.found.push({ kind: "open", bracket }, { kind: "text", text: place.href }, { kind: "close" });
    this.at = place.end;
  }

  private newline(): void {
    const last = this.found.at(-1);
    const isBreak = last?.kind === "text" && last.text.endsWith("  ");
    if (isBreak) this.found.push({ kind: "break" });
    else this.found.push({ kind: "text", text: "\n" });
    this.at += 1;
  }

  private before(at: number): string {
    return [...this.text.slice(Math.max(at - 2, 0), at)].at(-1) ?? "";
  }

  private after(at: number): string {
    return [...this.text.slice(at, at + 2)][0] ?? "";
  }
}
