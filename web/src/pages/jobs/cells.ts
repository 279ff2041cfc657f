/** What the cells of a row show. */
import type { JobSummary } from "../../api/wire";
import { isNumeric, type Value } from "../../runs/columns";
import { number } from "../../text/number";
import { labelsText } from "./edits";

/** Letters of any width that fit into the narrowest cell, and digits. */
const FITS = 7;
const FITS_DIGITS = 12;

export interface Cell {
  readonly text: string;
  readonly isNumber: boolean;
  /** The whole value, where the text may be less. */
  readonly title: string | undefined;
}

/** Returns what a column besides the usual ones says of a job. */
export function cellOf(job: JobSummary, name: string): Cell {
  const value: Value = valueOf(job, name);
  const isNumber = isNumeric(value, name);
  const text = value === null ? "" : name.startsWith("metric:") ? number(value as number) : String(value);
  const isShown = !isNumber && fits(text);
  return { text, isNumber, title: isShown ? undefined : String(value) };
}

/** Whether a text needs no ellipsis in the narrowest cell: a cell that clips its text is a layer of its own for the browser. */
export function fits(text: string, isNumber = false): boolean {
  return text.length <= (isNumber ? FITS_DIGITS : FITS);
}

function valueOf(job: JobSummary, name: string): Value {
  if (name === "labels") return labelsText(job.labels);
  if (name.startsWith("label:")) return own(job.labels, name.slice("label:".length)); // as the stream tells it
  return own(job.columns ?? {}, name);
}

/** A key may be `constructor`, that no object lacks. */
function own(values: Readonly<Record<string, Value>>, key: string): Value {
  return Object.hasOwn(values, key) ? (values[key] ?? null) : null;
}
