/** Writes the names of lines at their ends, so that one knows which is which of a few without a legend and without colours. */
import type { Line } from "./line";
import { rowsWithin } from "./range";
import type { Theme } from "./theme";
import { xOf, yOf, type Area } from "./trace";

/** Of more lines the names would hide them. */
const UP_TO = 6;
const LETTERS = 16;
/** Pixels of the page. */
const HEIGHT = 13;
const GAP = 4;

interface Name {
  readonly text: string;
  readonly slot: number;
  readonly left: number;
  readonly right: number;
  /** Of its middle. */
  y: number;
}

/** Writes the names of two to six jobs, or of the parts of one, at the ends of their lines. */
export function paintEnds(
  ctx: CanvasRenderingContext2D,
  area: Area,
  lines: readonly Line[],
  smooth: boolean,
  theme: Theme,
): void {
  const named = namedOf(lines);
  if (named.length < 2 || named.length > UP_TO) return;
  ctx.font = `600 ${11 * area.ratio}px ${theme.bodyFont}`;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.lineWidth = 3 * area.ratio;
  ctx.lineJoin = "round";
  ctx.strokeStyle = theme.bg;
  const names = named.flatMap(([line, name]) => nameAt(ctx, area, line, name, smooth));
  part(names, area);
  for (const { text, slot, left, y } of names) {
    ctx.strokeText(text, left, y);
    ctx.fillStyle = theme.series[slot - 1] ?? theme.ink;
    ctx.fillText(text, left, y);
  }
}

/** Returns the lines that have a name, and it: of several jobs the main line of each, of one job its parts. */
function namedOf(lines: readonly Line[]): readonly (readonly [Line, string])[] {
  const ofJobs = new Map<string, Line>();
  for (const line of lines) if (ofJobs.get(line.jobId)?.colour.isPale ?? true) ofJobs.set(line.jobId, line);
  if (ofJobs.size > 1) return [...ofJobs.values()].map((line) => [line, line.job]);
  return lines.map((line) => [line, line.name]);
}

/** Returns the name beside the last finite value in the range that is shown, within the plot; nothing without one. */
function nameAt(
  ctx: CanvasRenderingContext2D,
  area: Area,
  line: Line,
  name: string,
  smooth: boolean,
): readonly Name[] {
  const text = name.length > LETTERS ? `${name.slice(0, LETTERS - 1)}…` : name;
  const [from, to] = rowsWithin(line, area.x);
  const values = line.shown(smooth);
  for (let row = to - 1; row >= from; row--) {
    const end = yOf(area, values[row] ?? NaN);
    if (!Number.isFinite(end)) continue;
    const { width } = ctx.measureText(text);
    const gap = GAP * area.ratio;
    const left = Math.min(xOf(area, line.x(row)) + gap, area.left + area.width - gap - width);
    const y = Math.max(area.top, Math.min(area.top + area.height, end)) - (HEIGHT / 2) * area.ratio;
    return [{ text, slot: line.colour.slot, left, right: left + width, y }];
  }
  return [];
}

/** Moves names that would lie over one another: down, and up again where the plot ends. */
function part(names: Name[], area: Area): void {
  const height = HEIGHT * area.ratio;
  const isBeside = (one: Name, other: Name): boolean => one.left < other.right && other.left < one.right;
  names.sort((one, other) => one.y - other.y);
  for (const [at, name] of names.entries())
    for (const above of names.slice(0, at))
      if (isBeside(name, above)) name.y = Math.max(name.y, above.y + height);
  const lowest = area.top + area.height - height / 2;
  for (const [at, name] of [...names].reverse().entries()) {
    name.y = Math.max(area.top + height / 2, Math.min(name.y, lowest));
    for (const below of [...names].reverse().slice(0, at))
      if (isBeside(name, below)) name.y = Math.min(name.y, below.y - height);
  }
}
