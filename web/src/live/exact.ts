/** Reads what a job stored between two positions, one item at a time, so that a batch can begin in its middle. */
import { url } from "../api/client";
import { sessionHeaders } from "../api/secret";
import type { EventView, LogLine } from "../api/wire";
import type { Items } from "./events";
import { readEvents } from "./sse";

interface Point {
  readonly key: string;
  readonly step: number;
  readonly value: number | string;
  readonly time: string;
  readonly attempt: number;
}

interface Columns {
  step: number[];
  value: (number | string)[];
  time: number[];
  attempt: number[];
}

/** Returns the items at positions above `from`, up to `to`. Throws if the stream ends before. */
export async function itemsBetween(jobId: string, from: number, to: number): Promise<Items> {
  const connection = new AbortController();
  const metrics = new Map<string, Columns>();
  const logs: LogLine[] = [];
  const events: EventView[] = [];
  let isWhole = false;
  const answer = await fetch(url(`v1/jobs/${jobId}/stream`, { after: from }), {
    signal: connection.signal,
    credentials: "same-origin",
    headers: sessionHeaders(),
  });
  if (!answer.ok || !answer.body) throw new Error(`the stream answered ${answer.status}`);
  try {
    await readEvents(answer.body, ({ name, id, data }) => {
      const position = Number(id);
      if (isWhole) return;
      if (name === "end" || position >= to) isWhole = true;
      if (name !== "end" && position <= to) {
        const item = JSON.parse(data) as unknown;
        if (name === "metric") add(metrics, item as Point);
        else if (name === "log") logs.push(item as LogLine);
        else events.push(item as EventView);
      }
      if (isWhole) connection.abort();
    });
  } catch (error) {
    if (!isWhole) throw error;
  }
  if (!isWhole) throw new Error("the stream ended early");
  return { job_id: jobId, position: to, metrics: Object.fromEntries(metrics), logs, events };
}

function add(metrics: Map<string, Columns>, point: Point): void {
  const columns = metrics.get(point.key) ?? { step: [], value: [], time: [], attempt: [] };
  metrics.set(point.key, columns);
  columns.step.push(point.step);
  columns.value.push(point.value);
  columns.time.push(Date.parse(point.time) / 1000);
  columns.attempt.push(point.attempt);
}
