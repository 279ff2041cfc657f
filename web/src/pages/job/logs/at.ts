/** Opens a job's log at the line that was written at a time. */
import { get } from "../../../api/client";
import type { LogLine } from "../../../api/wire";
import { href, navigate } from "../../../router.svelte";

interface Lines {
  readonly data: readonly LogLine[];
  /** The number of the last line. */
  readonly total: number;
}

/** Opens the log, unless one has gone on to something else when the line is found. */
export async function openAt(jobId: string, time: number, isWanted: () => boolean): Promise<void> {
  const line = await lineAt(jobId, time).catch(() => null); // the log itself says what is wrong
  if (!isWanted()) return;
  navigate(href(`jobs/${jobId}`, { tab: "logs", ...(line === null ? {} : { line: String(line) }) }));
}

/** Returns the number of the last line that came until then, in seconds since the epoch; without one the first, and null without any. */
export async function lineAt(jobId: string, time: number): Promise<number | null> {
  const read = (after: number): Promise<Lines> => get(`v1/jobs/${jobId}/logs`, { after, limit: 1 });
  const { data, total } = await read(0);
  if (!data[0]) return null;
  let [low, high] = [data[0].line, total];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    const [line] = (await read(middle - 1)).data;
    if (line && Date.parse(line.time) / 1000 <= time) low = line.line;
    else high = middle - 1;
  }
  return low;
}
