/** The widths of the table's columns, and which of them a screen has room for. */
import type { Column } from "../../runs/columns";

export const ROW = 32;
/** Of a phone, where a row has two lines. */
export const NARROW_ROW = 52;
const NARROW = 640;

interface Width {
  /** Pixels. */
  readonly least: number;
  /** Of the room that is left. */
  readonly share: number;
  /** The narrowest screen that shows it. */
  readonly screen?: number;
}

const WIDTHS = new Map<string, Width>([
  ["name", { least: 200, share: 3 }],
  ["progress", { least: 176, share: 2 }],
  ["metric", { least: 240, share: 3, screen: 861 }],
  ["owner", { least: 88, share: 0.5, screen: 1101 }],
  ["devices", { least: 104, share: 1, screen: 1101 }],
  ["age", { least: 72, share: 0 }],
]);
/** A mean with its spread. */
const CELL: Width = { least: 128, share: 1 };
/** Beside charts, where there is less room. */
const BESIDE: Width = { least: 72, share: 1 };
const CHECK = 28;
const EYE = 60;
const STATE = 108;

/** Where the table stands. */
export interface Place {
  /** Of the window, in pixels. */
  readonly screen: number;
  /** Whether charts are beside it: a row has an eye, and its state is the sign alone. */
  readonly isBeside: boolean;
}

export function isNarrow({ screen }: Place): boolean {
  return screen <= NARROW;
}

/** Returns the columns that are shown; on a phone the name's second line has what matters of them. */
export function fitting(columns: readonly Column[], place: Place): readonly Column[] {
  if (isNarrow(place)) return [];
  if (place.isBeside) return columns;
  return columns.filter(({ name }) => place.screen >= (widthOf(name, place).screen ?? 0));
}

/** Returns the columns of the grid that each row is, with those before the chosen ones. */
export function tracksOf(columns: readonly Column[], place: Place): string {
  const first = firstOf(place).map((width) => `${width}px`);
  if (isNarrow(place)) return [...first, "minmax(0, 1fr)"].join(" ");
  const tracks = ["name", ...columns.map(({ name }) => name)].map((name) => widthOf(name, place));
  return [...first, ...tracks.map(({ least, share }) => `minmax(${least}px, ${share}fr)`)].join(" ");
}

/** Returns the least width of a table of these columns. */
export function leastOf(columns: readonly Column[], place: Place): number {
  if (isNarrow(place)) return 0;
  const widths = ["name", ...columns.map(({ name }) => name)].map((name) => widthOf(name, place).least);
  return [...firstOf(place), ...widths].reduce((sum, width) => sum + width, 0);
}

/** Returns the widths of the columns before the name: check, eye and state. */
function firstOf(place: Place): readonly number[] {
  const state = place.isBeside || isNarrow(place) ? CHECK : STATE;
  return place.isBeside ? [CHECK, EYE, state] : [CHECK, state];
}

function widthOf(name: string, { isBeside }: Place): Width {
  const own = WIDTHS.get(name);
  if (!isBeside) return own ?? CELL;
  return name === "name"
    ? { least: 144, share: 2 }
    : own
      ? { ...BESIDE, least: Math.min(own.least, 144) }
      : BESIDE;
}
