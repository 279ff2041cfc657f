/** Writes the names of lines at their ends, so that few lines are told apart without a legend and without colours. */
import type { Line } from "./line";
import { rowsWithin } from "./range";
import type { Theme } from "./theme";
import { yOf, type Area } from "./trace";

/** Of more lines the names would hide them. */
const UP_TO = 6;
const LETTERS = 16;
/** Pixels of the page. */
const HEIGHT = 13;
const GAP = 4;

interface End {
  readonly line: Line;
  readonly y: number;
}

/** Writes the names of two to six lines at the right edge, below one another where they end at about one place. */
export function paintEnds(
  ctx: CanvasRenderingContext2D,
  area: Area,
  lines: readonly Line[],
  smooth: boolean,
  theme: Theme,
): void {
  if (lines.length < 2 || lines.length > UP_TO) return;
  const height = HEIGHT * area.ratio;
  const ends = lines.flatMap((line) => endOf(area, line, smooth)).sort((one, other) => one.y - other.y);
  ctx.font = `600 ${11 * area.ratio}px ${theme.bodyFont}`;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  ctx.lineWidth = 3 * area.ratio;
  ctx.lineJoin = "round";
  ctx.strokeStyle = theme.bg;
  const right = area.left + area.width - GAP * area.ratio;
  for (const [{ line }, y] of apart(ends, area, height)) {
    const text = line.name.length > LETTERS ? `${line.name.slice(0, LETTERS - 1)}…` : line.name;
    ctx.strokeText(text, right, y);
    ctx.fillStyle = theme.series[line.colour.slot - 1] ?? theme.ink;
    ctx.fillText(text, right, y);
  }
}

/** Returns the ends from top to bottom, each at least a line of text below the one before, and all within the plot. */
function apart(ends: readonly End[], area: Area, height: number): readonly (readonly [End, number])[] {
  const bottom = area.top + area.height - height / 2;
  const places: number[] = [];
  for (const [at, { y }] of ends.entries())
    places.push(Math.max(y - height / 2, (places[at - 1] ?? area.top - height / 2) + height));
  let limit = bottom;
  for (let at = ends.length - 1; at >= 0; at--) {
    places[at] = Math.min(places[at] ?? bottom, limit);
    limit = (places[at] ?? bottom) - height;
  }
  return ends.map((end, at) => [end, places[at] ?? bottom] as const);
}

/** Returns where the line ends in the range that is shown; nothing where it has no finite value there. */
function endOf(area: Area, line: Line, smooth: boolean): readonly End[] {
  const [from, to] = rowsWithin(line, area.x);
  const values = line.shown(smooth);
  for (let row = to - 1; row >= from; row--) {
    const y = yOf(area, values[row] ?? NaN);
    if (Number.isFinite(y)) return [{ line, y: Math.max(area.top, Math.min(area.top + area.height, y)) }];
  }
  return [];
}
