/** Lines of a log as text alone, to be copied: without numbers, times and colours. */
import type { LogLine } from "../../../api/wire";
import { plain } from "./ansi";

/** So many lines are copied at most. */
export const MOST_COPIED = 10_000;
const PAGE = 1_000;

/** Reads the lines after a number, at most `limit`. */
type Read = (after: number, limit: number) => Promise<readonly LogLine[]>;

/** Returns the text of the lines from one number to another. */
export async function textOfLines(read: Read, from: number, to: number): Promise<string> {
  const found: string[] = [];
  let after = from - 1;
  while (after < to && found.length < MOST_COPIED) {
    const page = await read(after, PAGE);
    const wanted = page.filter((line) => line.line <= to);
    found.push(...wanted.map((line) => plain(line.text)));
    if (wanted.length < page.length || page.length < PAGE) break;
    after = page.at(-1)?.line ?? to;
  }
  return found
    .slice(0, MOST_COPIED)
    .map((text) => `${text}\n`)
    .join("");
}
