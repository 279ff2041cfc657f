/** Searches a log on the service, page by page, and finds the matches of a line that is shown. */
import type { LogMatch } from "../../../api/wire";
import { plain, visible } from "./ansi";

export interface SearchPage {
  readonly data: readonly LogMatch[];
  readonly last_line: number;
  /** The line behind which the search goes on; null where nothing is left. */
  readonly next: string | null;
}

/** Reads what matches behind a line. An answer has a part of it: of the log, or of the matches. */
export type ReadMatches = (after: string) => Promise<SearchPage>;

/** After so many more matches, a person says whether to go on: all of a log would fill the memory. */
export const MATCHES_AT_ONCE = 20_000;

/** The lines that match, in order. */
export interface Found {
  readonly lines: readonly LogMatch[];
  /** The number of the last line that was searched. */
  readonly searched: number;
  /** Whether that was the log's last line. */
  readonly isWhole: boolean;
}

export const NOTHING: Found = { lines: [], searched: 0, isWhole: false };

/** Yields what was found so far, after each page, from what was found before to the end of the log. */
export async function* search(read: ReadMatches, before: Found = NOTHING): AsyncGenerator<Found> {
  const lines = [...before.lines];
  for (let after: string | null = String(before.searched); after !== null;) {
    const page: SearchPage = await read(after);
    lines.push(...page.data);
    after = page.next;
    yield { lines: [...lines], searched: Number(after ?? page.last_line), isWhole: after === null };
    if (lines.length - before.lines.length >= MATCHES_AT_ONCE) return;
  }
}

/** Returns the match after the one at an index, or before it; without one (-1) the first, or the last. They form a ring. */
export function matchAfter(lines: readonly LogMatch[], current: number, by: 1 | -1): LogMatch | undefined {
  const from = current >= 0 ? current : by > 0 ? -1 : lines.length;
  return lines[(from + by + lines.length) % lines.length];
}

/** A part of a line: `start` to `end`, in characters. */
export interface Range {
  readonly start: number;
  readonly end: number;
}

/** Returns where `query` occurs in `text`, which is what is shown of a line. */
export function matches(text: string, query: string): Range[] {
  if (query === "") return [];
  const pattern = new RegExp(query.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "giu");
  const found: Range[] = [];
  for (const match of text.slice(0, 10_000).matchAll(pattern)) {
    found.push({ start: match.index, end: match.index + match[0].length });
    if (found.length === 100) break;
  }
  return found;
}

/**
 * Returns what is shown of the places where the service found a pattern in a line. A pattern may come with a link of a
 * stranger, and the browser's own expressions may take for ever: only the service, whose cannot, evaluates it.
 */
export function shownRanges(line: string, spans: LogMatch["spans"]): Range[] {
  const characters = [...line.slice(0, 10_000)];
  const overwritten = line.lastIndexOf(visible(line));
  const shown = (place: number): number =>
    plain(line.slice(overwritten, characters.slice(0, place).join("").length)).length;
  return spans
    .map(([start, end]) => ({ start: shown(start), end: shown(end) }))
    .filter(({ start, end }) => start < end);
}
