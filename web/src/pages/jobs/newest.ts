import type { JobSummary } from "../../api/wire";

/** Returns what is newer: an answer and the stream may overtake each other. */
export function newest(one: JobSummary, other: JobSummary | undefined): JobSummary {
  if (!other) return one;
  if (one.version !== other.version) return one.version > other.version ? one : other;
  return one.position >= other.position ? one : other;
}
