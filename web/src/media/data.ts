/** The data of items, as far as it has the form that it should: a script may have written anything. */
export interface Histogram {
  /** Ascending; one more than counts. */
  readonly edges: readonly number[];
  readonly counts: readonly number[];
}

export interface Matrix {
  readonly classes: readonly string[];
  /** A row of counts for each true class. */
  readonly matrix: readonly (readonly number[])[];
}

export type Cell = string | number | boolean | null;

export interface Grid {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly Cell[])[];
}

export function histogramOf(data: unknown): Histogram | null {
  const edges = numbers(field(data, "edges"));
  const counts = numbers(field(data, "counts"));
  return edges && counts && counts.length > 0 && edges.length === counts.length + 1
    ? { edges, counts }
    : null;
}

export function matrixOf(data: unknown): Matrix | null {
  const rows = field(data, "matrix");
  if (!Array.isArray(rows) || rows.length === 0) return null;
  const matrix = rows.flatMap((row) => {
    const counts = numbers(row);
    return counts?.length === rows.length ? [counts] : [];
  });
  if (matrix.length !== rows.length) return null;
  const names = field(data, "classes");
  const named: readonly unknown[] = Array.isArray(names) ? names : [];
  return { classes: rows.map((_, index) => textOf(named[index] ?? index)), matrix };
}

export function gridOf(data: unknown): Grid | null {
  const [columns, rows] = [field(data, "columns"), field(data, "rows")];
  if (!Array.isArray(columns) || !Array.isArray(rows)) return null;
  const lists = rows.filter((row): row is unknown[] => Array.isArray(row));
  return {
    columns: columns.map(textOf),
    rows: lists.map((row) => columns.map((_, index) => cellOf(row[index] ?? null))),
  };
}

export function textIn(data: unknown): string | null {
  const text = field(data, "text");
  return typeof text === "string" ? text : null;
}

/** Returns what the text should be, if that is known. */
export function expectedIn(data: unknown): string | null {
  const text = field(data, "expected");
  return typeof text === "string" ? text : null;
}

/** Returns what was left out of the data, if anything. */
export function noteIn(data: unknown): string | null {
  const note = field(data, "note");
  return typeof note === "string" ? note : null;
}

function field(data: unknown, name: string): unknown {
  return typeof data === "object" && data !== null ? (data as Record<string, unknown>)[name] : undefined;
}

function numbers(value: unknown): readonly number[] | null {
  return Array.isArray(value) && value.every((item) => typeof item === "number") ? value : null;
}

function cellOf(value: unknown): Cell {
  return typeof value === "number" || typeof value === "boolean" || value === null ? value : textOf(value);
}

function textOf(value: unknown): string {
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
