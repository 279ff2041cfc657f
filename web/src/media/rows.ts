/** Sorts the rows of a table that a job logged, and writes them as CSV. */
import { textCell } from "../charts/table";
import { natural } from "../text/natural";
import { setting } from "../text/number";
import type { Cell, Grid } from "./data";

export interface Order {
  readonly column: number;
  readonly isDescending: boolean;
}

/** Returns the rows in an order: numbers by value, then texts; nothing last. Rows that are alike keep their places. */
export function sorted(grid: Grid, order: Order | null): Grid["rows"] {
  if (order === null) return grid.rows;
  const sign = order.isDescending ? -1 : 1;
  return [...grid.rows].sort((a, b) => compared(a[order.column] ?? null, b[order.column] ?? null, sign));
}

/** Returns the columns that have numbers and nothing else: their cells are aligned to the right. */
export function numeric(grid: Grid): readonly boolean[] {
  return grid.columns.map((_, column) => {
    const cells = grid.rows.map((row) => row[column] ?? null).filter((cell) => cell !== null);
    return cells.length > 0 && cells.every((cell) => typeof cell === "number");
  });
}

/** Returns how many characters the longest cell of each column has. */
export function columnWidths(grid: Grid): readonly number[] {
  return grid.columns.map((_, column) =>
    grid.rows.reduce((most, row) => Math.max(most, cellText(row[column] ?? null).length), 0),
  );
}

/** Returns the rows as CSV (RFC 4180), numbers with all their digits. A spreadsheet runs none of its texts. */
export function csvOf(columns: Grid["columns"], rows: Grid["rows"]): string {
  const lines = [columns, ...rows].map((row) => row.map(csvCell).join(","));
  return `${lines.join("\r\n")}\r\n`;
}

export function cellText(cell: Cell): string {
  if (cell === null) return "—";
  return typeof cell === "number" ? setting(cell) : String(cell);
}

function csvCell(cell: Cell): string {
  return typeof cell === "string" ? textCell(cell) : cell === null ? "" : String(cell);
}

function compared(a: Cell, b: Cell, sign: number): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  if (typeof a === "number" || typeof b === "number") return typeof a === "number" ? -1 : 1;
  return sign * natural(String(a), String(b));
}
