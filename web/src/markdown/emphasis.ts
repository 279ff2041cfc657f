/** Pairs the signs of emphasis as CommonMark does, in a time that grows with their number. */

export type Tag = "strong" | "em" | "del";

/** A run of `*`, `_` or `~`. What is left of `count` after `pair` is text. */
export interface Run {
  readonly sign: string;
  readonly length: number;
  count: number;
  readonly opens: boolean;
  readonly closes: boolean;
  /** What begins with it, the outermost last, and what ends with it, the innermost first. */
  readonly begins: Tag[];
  readonly ends: Tag[];
}

const SPACE = /^[\s\u00a0]?$/u;
const PUNCTUATION = /[\p{P}\p{S}]/u;

/** Returns a run between two characters; "" is an end of the text. */
export function runOf(sign: string, length: number, before: string, after: string): Run {
  const [spaceBefore, spaceAfter] = [SPACE.test(before), SPACE.test(after)];
  const [signBefore, signAfter] = [PUNCTUATION.test(before), PUNCTUATION.test(after)];
  const left = !spaceAfter && (!signAfter || spaceBefore || signBefore);
  const right = !spaceBefore && (!signBefore || spaceAfter || signAfter);
  const isWord = sign === "_"; // not within a word, such as a name of a variable
  const isReal = sign !== "~" || length === 2;
  return {
    ...{ sign, length, count: length, begins: [], ends: [] },
    opens: isReal && left && (!isWord || !right || signBefore),
    closes: isReal && right && (!isWord || !left || signAfter),
  };
}

/** Notes at each run what begins and what ends with it. */
export function pair(runs: readonly Run[]): void {
  const open: Run[] = [];
  /** By kind of closer: below this place none of the open runs fits it. */
  const floors = new Map<string, number>();
  for (const run of runs) {
    while (run.closes && run.count > 0) {
      const kind = `${run.sign}${run.opens}${run.length % 3}`;
      const at = openerOf(run, open, floors.get(kind) ?? 0);
      if (at < 0) {
        floors.set(kind, open.length);
        break;
      }
      const opener = open[at] as Run;
      join(opener, run);
      open.length = opener.count > 0 ? at + 1 : at;
      for (const [other, floor] of floors) if (floor > open.length) floors.set(other, open.length);
    }
    if (run.opens && run.count > 0) open.push(run);
  }
}

function openerOf(closer: Run, open: readonly Run[], floor: number): number {
  for (let at = open.length - 1; at >= floor; at -= 1) if (fits(open[at] as Run, closer)) return at;
  return -1;
}

function fits(opener: Run, closer: Run): boolean {
  if (opener.sign !== closer.sign) return false;
  if (!opener.closes && !closer.opens) return true;
  return (opener.length + closer.length) % 3 !== 0 || (opener.length % 3 === 0 && closer.length % 3 === 0);
}

function join(opener: Run, closer: Run): void {
  const used = opener.count > 1 && closer.count > 1 ? 2 : 1;
  const tag = opener.sign === "~" ? "del" : used === 2 ? "strong" : "em";
  opener.begins.push(tag);
  closer.ends.push(tag);
  opener.count -= used;
  closer.count -= used;
}
