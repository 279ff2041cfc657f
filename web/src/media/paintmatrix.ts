/** Draws a confusion matrix: cells in the colours of right and wrong, the darker the larger their share of the true class. */
import { theme } from "../charts/theme";
import { between, css, parts } from "./colours";
import type { Matrix } from "./data";
import { rowSums, type Place } from "./matrix";

export interface Measures {
  /** Pixels of a cell, and of the margin that has the names. */
  readonly cell: number;
  readonly label: number;
  /** The cell that is framed. */
  readonly marked: Place | null;
}

/** From these sizes of a cell on, its count is written, and the names are. */
const [WRITTEN_CELL, NAMED_CELL] = [28, 10];
/** Pixels of the margin: what it may take of the cells, and at most. */
const [LEAST_MARGIN, MOST_MARGIN, BESIDE_NAME] = [64, 240, 10];

let measuring: CanvasRenderingContext2D | null | undefined;

/** Returns the width in pixels of the margin for the names: that of the longest name, if the cells stay wide enough for their counts. */
export function marginOf(classes: readonly string[], room: number): number {
  if (room < (NAMED_CELL + 1) * classes.length) return BESIDE_NAME; // of cells so small no name is written
  const longest = Math.max(...classes.map(widthOf)) + BESIDE_NAME;
  const left = Math.max(LEAST_MARGIN, room - WRITTEN_CELL * classes.length);
  return Math.ceil(Math.min(longest, left, MOST_MARGIN));
}

export function paintMatrix(canvas: HTMLCanvasElement, matrix: Matrix, measures: Measures): void {
  const { cell, label, marked } = measures;
  const count = matrix.classes.length;
  const ratio = devicePixelRatio || 1;
  const side = label + cell * count;
  [canvas.width, canvas.height] = [Math.round(side * ratio), Math.round(side * ratio)];
  [canvas.style.width, canvas.style.height] = [`${side}px`, `${side}px`];
  const context = canvas.getContext("2d");
  if (!context) return;
  context.scale(ratio, ratio);
  paintCells(context, matrix, measures);
  if (cell >= NAMED_CELL) paintNames(context, matrix, measures);
  if (marked === null || marked.truth >= count || marked.taken >= count) return;
  context.strokeStyle = theme().ink;
  context.lineWidth = 2;
  context.strokeRect(label + marked.taken * cell + 1, label + marked.truth * cell + 1, cell - 2, cell - 2);
}

function paintCells(context: CanvasRenderingContext2D, matrix: Matrix, { cell, label }: Measures): void {
  const { surface, series, ink, bodyFont } = theme();
  const [none, right, wrong] = [parts(surface), parts(series[2] ?? ""), parts(series[7] ?? "")];
  const sums = rowSums(matrix);
  const gap = cell > 8 ? 1 : 0;
  context.font = fontOf(12, bodyFont);
  [context.textAlign, context.textBaseline] = ["center", "middle"];
  for (const [truth, row] of matrix.matrix.entries())
    for (const [taken, value] of row.entries()) {
      const strength = Math.sqrt(value / (sums[truth] || 1));
      const [x, y] = [label + taken * cell, label + truth * cell];
      context.fillStyle = css(
        truth === taken ? between(none, right, strength * 0.35) : between(none, wrong, strength * 0.6),
      );
      context.fillRect(x, y, cell - gap, cell - gap);
      if (value === 0 || cell < WRITTEN_CELL) continue;
      context.fillStyle = ink;
      context.fillText(short(value), x + cell / 2, y + cell / 2, cell - 4);
    }
}

function paintNames(context: CanvasRenderingContext2D, matrix: Matrix, { cell, label }: Measures): void {
  const { muted, bodyFont } = theme();
  context.fillStyle = muted;
  context.font = fontOf(cell < 14 ? 10 : 12, bodyFont);
  for (const [index, text] of matrix.classes.entries()) {
    const middle = label + index * cell + cell / 2;
    const name = fitted(context, text, label - 8);
    [context.textAlign, context.textBaseline] = ["right", "middle"];
    context.fillText(name, label - 6, middle);
    context.save();
    context.translate(middle, label - 6);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(name, 0, 0);
    context.restore();
  }
}

function widthOf(text: string): number {
  measuring ??= document.createElement("canvas").getContext("2d");
  if (!measuring) return 7 * text.length;
  measuring.font = fontOf(12, theme().bodyFont);
  return measuring.measureText(text).width;
}

function fontOf(size: number, family: string): string {
  return `${size}px ${family}`;
}

/** Returns the text with as many characters as there is room for. */
function fitted(context: CanvasRenderingContext2D, text: string, room: number): string {
  if (context.measureText(text).width <= room) return text;
  let length = text.length - 1;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > room) length -= 1;
  return `${text.slice(0, length)}…`;
}

function short(value: number): string {
  return value < 10_000 ? String(value) : Intl.NumberFormat("en-US", { notation: "compact" }).format(value);
}
