/** Searches a log on the service, page by page, and finds the matches of a line that is shown. */
import type { LogLine } from "../../../api/wire";

export interface SearchPage {
  readonly data: readonly LogLine[];
  readonly complete: boolean;
  readonly next: string | null;
}

export type ReadMatches = (after: string | null) => Promise<SearchPage>;

const MOST_MATCHES = 5000;

/** The lines that match, in order. `complete`: the whole log was searched; else there may be more. */
export interface Found {
  readonly lines: readonly LogLine[];
  readonly complete: boolean;
}

/** Yields what was found so far, after each page, until the whole log is searched or enough lines match. */
export async function* search(read: ReadMatches): AsyncGenerator<Found> {
  const lines: LogLine[] = [];
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

/** Returns where `query` occurs in `text`. A pattern that the browser cannot read marks nothing. */
export function matches(text: string, query: string, { regex }: { regex: boolean }): Range[] {
  if (query === "") return [];
  const pattern = expression(regex ? query : query.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (pattern === null) return [];
  const found: Range[] = [];
  for (const match of text.slice(0, 10_000).matchAll(pattern)) {
    if (match[0] !== "") found.push({ start: match.index, end: match.index + match[0].length });
    if (found.length === 100) break;
  }
  return found;
}

function expression(source: string): RegExp | null {
  try {
    return new RegExp(source, "giu");
  } catch {
    return null;
  }
}
