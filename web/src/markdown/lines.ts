/** What a line of Markdown begins. */

/** What begins an item of a list. */
export interface Marker {
  /** The sign of the list: an item with another one begins another list. */
  readonly sign: string;
  /** The number of the item; null of one without. */
  readonly start: number | null;
  /** So many characters stand before the item's text, and as many spaces before its further lines. */
  readonly width: number;
  readonly text: string;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const MARKER = /^ {0,3}([-*+]|(\d{1,9})[.)])(?=[ \t]|$)/;
export const QUOTE = /^ {0,3}> ?/;
const MOST_SPACES = 4;

export function isBlank(line: string | undefined): boolean {
  return line === undefined || line.trim() === "";
}

/** Returns whether a line begins a block in the midst of a paragraph. */
export function interrupts(line: string): boolean {
  const marker = markerOf(line);
  const isList = marker !== null && marker.text !== "" && (marker.start ?? 1) === 1;
  return isList || fenceOf(line) !== null || levelOf(line) > 0 || QUOTE.test(line) || isRule(line);
}

/** Returns the signs that begin a block of code, or null. */
export function fenceOf(line: string): string | null {
  const [all, fence] = FENCE.exec(line) ?? [];
  if (all === undefined || fence === undefined) return null;
  return fence.startsWith("`") && line.includes("`", all.length) ? null : fence;
}

/** Returns the level of a heading; 0 of another line. */
export function levelOf(line: string): number {
  return HEADING.exec(line)?.[1]?.length ?? 0;
}

/** Returns whether a line is of three or more of the same sign. */
export function isRule(line: string): boolean {
  if (line.startsWith("    ")) return false;
  const signs = line.replace(/[ \t]/g, "");
  const [first = ""] = signs;
  return signs.length > 2 && "-*_".includes(first) && signs === first.repeat(signs.length);
}

export function markerOf(line: string): Marker | null {
  const found = MARKER.exec(line);
  if (!found) return null;
  const [all, mark = "", number] = found;
  const after = line.slice(all.length);
  const spaces = after.length - after.trimStart().length;
  // More spaces are those of code within the item.
  const taken = spaces === after.length || spaces > MOST_SPACES ? 1 : spaces;
  return {
    ...{ sign: mark.at(-1) ?? "", start: number === undefined ? null : Number(number) },
    ...{ width: all.length + taken, text: after.slice(taken) },
  };
}

/** Returns how many spaces a line begins with. */
export function indentOf(line: string): number {
  const spaces = line.length - line.trimStart().length;
  return line.startsWith("\t") ? spaces * MOST_SPACES : spaces;
}

export function withoutIndent(line: string, most: number): string {
  if (line.startsWith("\t")) return line.slice(1);
  return line.slice(Math.min(most, line.length - line.trimStart().length));
}
