/** Searches a log on the service, page by page, and finds the matches of a line that is shown. */
import type { LogMatch } from "../../../api/wire";
import { plain, visible } from "./ansi";

export interface SearchPage {
  readonly data: readonly LogMatch[];
  readonly complete: boolean;
  readonly next: string | null;
}

export type ReadMatches = (after: string | null) => Promise<SearchPage>;

const MOST_MATCHES = 5000;

/** The lines that match, in order. `complete`: the whole log was searched; else there may be more. */
export interface Found {
  readonly lines: readonly LogMatch[];
  readonly complete: boolean;
}

/** Yields what was found so far, after each page, until the whole log is searched or enough lines match. */
export async function* search(read: ReadMatches): AsyncGenerator<Found> {
  const lines: LogMatch[] = [];
  let after: string | null = null;
  for (;;) {
    const page = await read(after);
    lines.push(...page.data);
    yield { lines: lines.slice(0, MOST_MATCHES), complete: page.complete && lines.length <= MOST_MATCHES };
    if (page.complete || page.next === null || lines.length >= MOST_MATCHES) return;
    after = page.next;
  }
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
