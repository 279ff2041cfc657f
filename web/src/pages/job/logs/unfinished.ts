/** Lines of output that have no end so far, such as progress bars: the newest text of each rank and stream. */
import type { LiveLine, LogLine } from "../../../api/wire";
import type { LiveEvent } from "../../../live/events";

export type Unfinished = ReadonlyMap<string, LiveLine>;

/** Returns the lines after an event: a line that is stored, or whose text is empty, has ended. */
export function after(known: Unfinished, event: LiveEvent): Unfinished {
  const lines = new Map(known);
  if (event.kind === "line") {
    if (event.line.text) lines.set(keyOf(event.line), event.line);
    else lines.delete(keyOf(event.line));
  } else if (event.kind === "items") {
    for (const line of event.items.logs) lines.delete(keyOf(line));
    // What a process has not finished when it ends is stored, or nobody will.
    if (event.items.events.some((item) => item.type === "state")) lines.clear();
  } else return known;
  return lines;
}

function keyOf(line: LiveLine | LogLine): string {
  return `${line.rank ?? ""} ${line.stream}`;
}
