/** Which line of a job's log was written at a time. */
import { get } from "../../../api/client";
import type { LogLine } from "../../../api/wire";

interface Lines {
  readonly data: readonly LogLine[];
  /** The number of the last line. */
  readonly total: number;
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
