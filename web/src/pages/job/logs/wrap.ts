/** How many rows lines take that go on below. They break at any character, as in a terminal: the count needs no layout. */
import { plain } from "./ansi";
import { hasOwnTime } from "./stamp";

/** Characters of the time before a line that has none of its own. */
export const TIME_CHARACTERS = 9;

/** A longer line scrolls by itself: it always fits into the view. */
const MOST_ROWS = 12;

/** Returns the rows of a line, at least one. */
export function rowsOf(line: string, columns: number): number {
  const text = plain(line);
  const length = text.length + (hasOwnTime(text) ? 0 : TIME_CHARACTERS);
  return Math.min(Math.max(Math.ceil(length / columns), 1), MOST_ROWS);
}

/** Returns the index of the first of the last lines that fit into the rows together; the last line alone always does. */
export function firstOfLast(
  lines: readonly { readonly text: string }[],
  rows: number,
  columns: number,
): number {
  let left = rows;
  let index = lines.length;
  while (index > 0) {
    left -= rowsOf(lines[index - 1]?.text ?? "", columns);
    if (left < 0) break;
    index -= 1;
  }
  return Math.max(Math.min(index, lines.length - 1), 0);
}
