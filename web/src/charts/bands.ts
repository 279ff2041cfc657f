/** Jobs that are one line: the mean of their curves, with how far they spread. */
import { Place } from "./axis";
import { Columns } from "./columns";
import { colourOfPart } from "./colours";
import { Line, type Drawn, type JoinView, type LineGroup } from "./line";
import { isMeasured } from "./smoothing";

/** Rows of a band: more would lie closer than pixels do. */
const MOST_ROWS = 1000;
const SUMMED = ["mean", "ema", "step", "time"] as const;
const NOWHERE = new Place("step", []);

/** The line of a group. Its rows lie where at least two of its jobs have points; `weight` is how many have. */
export class BandLine extends Line {
  override readonly isBand = true;

  constructor(
    group: LineGroup,
    readonly members: readonly Line[],
    columns: Columns,
    /** Of each row, on the x axis. */
    readonly places: Float64Array,
  ) {
    super({ ...drawnOf(group, members), columns, place: NOWHERE });
  }

  override x(row: number): number {
    return this.places[row] ?? NaN;
  }

  override isSmoothed(): boolean {
    return this.members.some((line) => line.isSmoothed());
  }

  override get sources(): readonly Line[] {
    return this.members;
  }
}

/** Returns the lines of each key as one for each group. A group of one job stays that job's line, in the group's colour. */
export function joined(
  lines: readonly Line[],
  groups: readonly LineGroup[],
  view: JoinView,
): readonly Line[] {
  const keys = [...new Set(lines.map(({ key }) => key))];
  return keys.flatMap((key) => groups.flatMap((group) => ofGroup(group, key, lines, view)));
}

function ofGroup(group: LineGroup, key: string, lines: readonly Line[], view: JoinView): readonly Line[] {
  const ids = new Set(group.jobs);
  const members = lines.filter((line) => line.key === key && ids.has(line.jobId) && line.columns.length > 0);
  if (members.length > 1) return [bandOf(group, members, view)];
  return members.map(
    ({ columns, place, whole }) => new Line({ ...drawnOf(group, members), columns, place, whole }),
  );
}

/** Returns whose line it is, and how it is drawn. */
function drawnOf(
  { id, name, colour }: LineGroup,
  [first]: readonly Line[],
): Omit<Drawn, "columns" | "place"> {
  const { key = "", part = null } = first ?? {};
  return {
    ...{ jobId: id, job: name, key, part },
    name: part === null ? name : `${name} · ${part}`,
    colour: colourOfPart(colour, part),
  };
}

function bandOf(group: LineGroup, members: readonly Line[], view: JoinView): BandLine {
  const places = placesOf(members);
  const columns = Columns.empty(places.length);
  const spread = new Spread(places.length);
  for (const line of members) add(line, places, columns, spread, view.smooth);
  // What was set has no spread around a mean: one standard deviation would go below every rate that there was.
  const isRange = view.isRange || !isMeasured(members[0]?.key ?? "");
  const rows: number[] = [];
  for (let i = 0; i < places.length; i++) if ((columns.weight[i] ?? 0) > 1) rows.push(i);
  for (const [to, from] of rows.entries()) {
    const count = columns.weight[from] ?? 1;
    for (const name of SUMMED) columns[name][to] = (columns[name][from] ?? NaN) / count;
    const [low, high] = spread.at(from, count, isRange);
    columns.min[to] = low;
    columns.max[to] = high;
    columns.weight[to] = count;
    columns.attempt[to] = 1;
    places[to] = places[from] ?? NaN;
  }
  columns.length = rows.length;
  columns.points = rows.reduce((sum, _, row) => sum + (columns.weight[row] ?? 0), 0);
  columns.newest = rows.length > 0 ? (columns.mean[rows.length - 1] ?? null) : null;
  return new BandLine(group, members, columns, places.subarray(0, rows.length));
}

/** How far values spread at each row, summed up as they come. */
class Spread {
  readonly #mean: Float64Array;
  readonly #squares: Float64Array;
  readonly #least: Float64Array;
  readonly #most: Float64Array;

  constructor(rows: number) {
    this.#mean = new Float64Array(rows);
    this.#squares = new Float64Array(rows);
    this.#least = new Float64Array(rows).fill(Infinity);
    this.#most = new Float64Array(rows).fill(-Infinity);
  }

  /** Adds the value that is the `count`th of a row. */
  add(row: number, value: number, count: number): void {
    const change = value - (this.#mean[row] ?? 0);
    const mean = (this.#mean[row] ?? 0) + change / count;
    this.#mean[row] = mean;
    this.#squares[row] = (this.#squares[row] ?? 0) + change * (value - mean);
    this.#least[row] = Math.min(this.#least[row] ?? value, value);
    this.#most[row] = Math.max(this.#most[row] ?? value, value);
  }

  at(row: number, count: number, isRange: boolean): readonly [number, number] {
    if (isRange) return [this.#least[row] ?? NaN, this.#most[row] ?? NaN];
    const deviation = Math.sqrt((this.#squares[row] ?? 0) / Math.max(1, count - 1));
    return [(this.#mean[row] ?? NaN) - deviation, (this.#mean[row] ?? NaN) + deviation];
  }
}

/** Adds a job's values at the places between its first and its last point, on straight lines between its points. */
function add(line: Line, places: Float64Array, into: Columns, spread: Spread, smooth: boolean): void {
  const { columns } = line;
  const shown = line.shown(smooth);
  let after = nextFinite(columns, 0);
  let before = after;
  for (let i = 0; i < places.length && after < columns.length; i++) {
    const x = places[i] ?? NaN;
    if (x < line.x(before)) continue;
    while (after < columns.length && line.x(after) < x) {
      before = after;
      after = nextFinite(columns, after + 1);
    }
    if (after === columns.length) return;
    const [left, right] = [line.x(before), line.x(after)];
    const share = right > left ? (x - left) / (right - left) : 1;
    const count = (into.weight[i] = (into.weight[i] ?? 0) + 1);
    for (const name of SUMMED)
      into[name][i] = (into[name][i] ?? 0) + between(columns[name], before, after, share);
    spread.add(i, between(shown, before, after, share), count);
  }
}

function between(values: Float64Array, before: number, after: number, share: number): number {
  return (values[before] ?? NaN) * (1 - share) + (values[after] ?? NaN) * share;
}

function nextFinite({ mean, ema, length }: Columns, row: number): number {
  let found = row;
  while (found < length && !(Number.isFinite(mean[found]) && Number.isFinite(ema[found]))) found += 1;
  return found;
}

/** Returns the places of all rows once, in their order; of more than enough, some that lie evenly among them. */
function placesOf(lines: readonly Line[]): Float64Array {
  const all = new Float64Array(lines.reduce((sum, { columns }) => sum + columns.length, 0));
  let end = 0;
  for (const line of lines) for (let row = 0; row < line.columns.length; row++) all[end++] = line.x(row);
  all.sort();
  const once = all.filter((x, i) => Number.isFinite(x) && x !== all[i - 1]);
  if (once.length <= MOST_ROWS) return once;
  return Float64Array.from(
    { length: MOST_ROWS },
    (_, i) => once[Math.round((i * (once.length - 1)) / (MOST_ROWS - 1))] ?? NaN,
  );
}
