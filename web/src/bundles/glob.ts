/**
 * Patterns with `*`, `?` and `[a-z]`, as git has them. No regular expressions: a pattern of a stranger takes at most as many
 * steps as its length times that of the name.
 */

/** Stands for any number of things, and for none. */
export const MANY = "many";
const ONE = "one";

interface Class {
  readonly isNegated: boolean;
  /** First and last code points. */
  readonly ranges: readonly (readonly [number, number])[];
}

/** What one character of a name must be: a code point, any, or one of a class. */
type Wanted = number | typeof ONE | Class;

export type Glob = readonly (Wanted | typeof MANY)[];

/** Why a line of an ignore file is none. */
export class InvalidPattern extends Error {}

const POSIX: Readonly<Record<string, string>> = {
  alnum: "09AZaz",
  alpha: "AZaz",
  blank: "\t\t  ",
  cntrl: "\0\x1f\x7f\x7f",
  digit: "09",
  graph: "!~",
  lower: "az",
  print: " ~",
  punct: "!/:@[`{~",
  space: "\t\r  ",
  upper: "AZ",
  xdigit: "09AFaf",
};
const POSIX_NAME = /^\[:([a-z]{1,6}):\]/;

/** Returns the pattern of one part of a path; null where a bracket is not closed, which matches nothing. Throws InvalidPattern. */
export function globOf(text: string): Glob | null {
  const found: (Wanted | typeof MANY)[] = [];
  for (let at = 0; at < text.length;) {
    const char = text[at] ?? "";
    if (char === "[") {
      const read = classOf(text, at + 1);
      if (read === null) return null;
      found.push(read.found);
      at = read.end;
      continue;
    }
    if (char === "\\") at++;
    const point = text.codePointAt(at);
    if (point === undefined) throw new InvalidPattern("ends in a backslash");
    if (char === "*") {
      if (found.at(-1) !== MANY) found.push(MANY);
    } else found.push(char === "?" ? ONE : point);
    at += point > 0xffff ? 2 : 1;
  }
  return found;
}

/** Returns whether the pattern is that of a name, which is given by its code points. */
export function matches(glob: Glob, points: readonly number[]): boolean {
  return fits(glob, points, takes);
}

/** Returns whether things follow each other as a pattern wants them. */
export function fits<Wish, Thing>(
  pattern: readonly (Wish | typeof MANY)[],
  things: readonly Thing[],
  takes: (wish: Wish, thing: Thing) => boolean,
): boolean {
  let at = 0;
  let next = 0;
  let afterMany = -1; // where to go on if what follows the newest MANY does not fit
  let tried = 0;
  while (at < things.length) {
    const wish = pattern[next];
    if (wish === MANY) {
      afterMany = ++next;
      tried = at;
    } else if (wish !== undefined && takes(wish, things[at] as Thing)) {
      next++;
      at++;
    } else if (afterMany >= 0) {
      next = afterMany;
      at = ++tried;
    } else return false;
  }
  while (pattern[next] === MANY) next++;
  return next === pattern.length;
}

function takes(wanted: Wanted, point: number): boolean {
  if (wanted === ONE) return true;
  if (typeof wanted === "number") return wanted === point;
  return wanted.ranges.some(([first, last]) => first <= point && point <= last) !== wanted.isNegated;
}

/** Reads what is in brackets, from the character behind the first one. */
function classOf(text: string, begin: number): { found: Class; end: number } | null {
  const isNegated = text[begin] === "!" || text[begin] === "^";
  const first = isNegated ? begin + 1 : begin;
  const ranges: (readonly [number, number])[] = [];
  for (let at = first; at < text.length;) {
    if (text[at] === "]" && at > first) return { found: { isNegated, ranges }, end: at + 1 };
    const name = text[at] === "[" ? POSIX_NAME.exec(text.slice(at, at + 10))?.[1] : undefined;
    if (name !== undefined) {
      ranges.push(...rangesOf(name));
      at += name.length + 4;
      continue;
    }
    const [low, behind] = memberAt(text, at);
    const isRange = text[behind] === "-" && behind + 1 < text.length && text[behind + 1] !== "]";
    const [high, end] = isRange ? memberAt(text, behind + 1) : [low, behind];
    if (high < low) throw new InvalidPattern("has a range that ends before it begins");
    ranges.push([low, high]);
    at = end;
  }
  return null;
}

function rangesOf(name: string): readonly (readonly [number, number])[] {
  const ends = Object.hasOwn(POSIX, name) ? [...(POSIX[name] ?? "")].map((char) => char.charCodeAt(0)) : [];
  return ends.flatMap((end, index) => (index % 2 ? [[ends[index - 1] ?? end, end] as const] : []));
}

/** Returns a code point in brackets, and where the next one begins. */
function memberAt(text: string, at: number): [number, number] {
  const own = text[at] === "\\" ? at + 1 : at;
  const point = text.codePointAt(own);
  if (point === undefined) throw new InvalidPattern("ends in a backslash");
  return [point, own + (point > 0xffff ? 2 : 1)];
}
