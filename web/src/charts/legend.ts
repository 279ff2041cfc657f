/** What the head of a chart says of its curves. */
import { number } from "../text/number";
import type { Colour } from "./colours";
import type { Line } from "./line";

/** A curve of the chart in its head: how it is drawn, and its newest value. */
export interface Legend {
  readonly id: string;
  readonly name: string;
  readonly colour: Colour | null;
  readonly value: string;
}

/** One job: the newest value of each of its curves. Several: what their parts look like, as their legend is above. */
export function legendOf(lines: readonly Line[]): readonly Legend[] {
  const isOne = new Set(lines.map(({ jobId }) => jobId)).size === 1;
  const parts = lines.filter((line, i) => isOne || lines.findIndex(({ key }) => key === line.key) === i);
  if (parts.length > 1)
    return [...parts].reverse().map(({ id, key, part, colour, whole }) => ({
      ...{ id, name: part ?? key, colour: isOne ? colour : { ...colour, slot: 0 } },
      value: isOne ? number(whole.newest) : "",
    }));
  return isOne && lines[0]
    ? [{ id: lines[0].id, name: "", colour: null, value: number(lines[0].last()) }]
    : [];
}
