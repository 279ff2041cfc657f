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
const CHECK = 28;
const STATE = 108;

export function isNarrow(screen: number): boolean {
  return screen <= NARROW;
}

/** Returns the columns that are shown; on a phone the name's second line has what matters of them. */
export function fitting(columns: readonly Column[], screen: number): readonly Column[] {
  if (isNarrow(screen)) return [];
  return columns.filter(({ name }) => screen >= (widthOf(name).screen ?? 0));
}

/** Returns the columns of the grid that each row is, with those before the chosen ones. */
export function tracksOf(columns: readonly Column[], screen: number): string {
  if (isNarrow(screen)) return `${CHECK}px ${CHECK}px minmax(0, 1fr)`;
  const tracks = ["name", ...columns.map(({ name }) => name)].map(widthOf);
  return `${CHECK}px ${STATE}px ${tracks.map(({ least, share }) => `minmax(${least}px, ${share}fr)`).join(" ")}`;
}

/** Returns the least width of a table of these columns. */
export function leastOf(columns: readonly Column[], screen: number): number {
  if (isNarrow(screen)) return 0;
  const widths = ["name", ...columns.map(({ name }) => name)].map((name) => widthOf(name).least);
  return widths.reduce((sum, width) => sum + width, CHECK + STATE);
}

function widthOf(name: string): Width {
  return WIDTHS.get(name) ?? CELL;
}
