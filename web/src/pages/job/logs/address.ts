/** What the page's address says of the log: the filter, the search and the chosen line. */
import type { Query } from "../../../api/client";
import type { LiveLine, LogLine } from "../../../api/wire";

export interface LogAddress {
  /** A rank, `launcher`, or null for all. */
  readonly rank: string | null;
  readonly attempt: string | null;
  /** What is searched, or "". */
  readonly wanted: string;
  readonly isRegex: boolean;
  /** Whether matches alone are listed. */
  readonly isOnly: boolean;
  /** The number of the chosen line, or 0. */
  readonly chosen: number;
  /** The number of the last line of a chosen range: that of the chosen line, if it is alone. */
  readonly to: number;
  /** Whether long lines go on below, in place of to the right. */
  readonly isWrapped: boolean;
}

export function readAddress(query: URLSearchParams): LogAddress {
  const wanted = query.get("q") ?? "";
  const chosen = numberOf(query, "line");
  return {
    rank: query.get("rank"),
    attempt: query.get("attempt"),
    wanted,
    isRegex: query.get("regex") === "1",
    isOnly: query.get("only") === "1" && wanted !== "",
    chosen,
    to: Math.max(numberOf(query, "to"), chosen),
    isWrapped: query.get("wrap") === "1",
  };
}

/** Returns what a choice of a line changes in the address; with `extend`, the range from the chosen line to it. */
export function choice(
  { chosen, to }: Pick<LogAddress, "chosen" | "to">,
  line: number,
  extend: boolean,
): Record<"line" | "to", string | null> {
  if (extend && chosen > 0 && line !== chosen)
    return { line: String(Math.min(chosen, line)), to: String(Math.max(chosen, line)) };
  return { line: line === chosen && to === chosen ? null : String(line), to: null };
}

/** Returns the filter as the service has it. */
export function filterOf({ rank, attempt }: LogAddress): Query {
  return rank === "launcher" ? { launcher: true, attempt } : { rank, attempt };
}

/** Returns the search as the service has it, or null where nothing is searched. */
export function searchOf(address: LogAddress): Query | null {
  if (address.wanted === "") return null;
  return { q: address.wanted, regex: address.isRegex, ...filterOf(address) };
}

/** Says whether a line passes the filter. */
export function passes({ rank, attempt }: LogAddress, line: LogLine | LiveLine): boolean {
  return (
    (rank === null || String(line.rank ?? "launcher") === rank) &&
    (attempt === null || String(line.attempt) === attempt)
  );
}

function numberOf(query: URLSearchParams, key: string): number {
  const number = Number(query.get(key) ?? 0);
  return Number.isSafeInteger(number) && number > 0 ? number : 0;
}
