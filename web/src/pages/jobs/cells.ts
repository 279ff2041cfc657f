/** The texts of the cells of a row, with how each is shown. */
import type { JobSummary } from "../../api/wire";
import { plotValue } from "../../plots/sweep";
import { isNumeric, type Value } from "../../runs/columns";
import { mayChange } from "../../shell/rights";
import { placeText } from "../../text/devices";
import { number, setting } from "../../text/number";
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

/** A cell of a row as it is drawn. Each row makes all of its own at once: that takes less than a derived value for each. */
export interface Drawn {
  /** The column's. */
  readonly name: string;
  /** Whether it is edited where it stands, or what draws it, if that is no text. */
  readonly kind: "text" | "edited" | "progress" | "metric" | "age";
  readonly text: string;
  readonly title: string | undefined;
  readonly classes: string;
}

/** Returns the cell of a job in a column. `workers`: their names by their ids. */
export function drawn(job: JobSummary, name: string, workers: ReadonlyMap<string, string>): Drawn {
  if (name === "progress" || name === "metric" || name === "age")
    return { name, kind: name, text: "", title: undefined, classes: name };
  if (name === "owner") return textCell(name, job.owner, undefined, "owner");
  if (name === "devices") {
    const title = job.devices.map((device) => device.name).join(", ");
    return textCell(name, placeOf(job, workers), title, "devices muted");
  }
  const { text, isNumber, title } = cellOf(job, name);
  if (!isEdited(job, name)) return textCell(name, text, title, isNumber ? "cell number" : "cell", isNumber);
  const classes = `quiet${fits(text) ? "" : " clip"}${text === "" ? " empty" : ""}`;
  const isNotes = name === "notes";
  return { name, kind: "edited", text, title: isNotes ? text || "Write notes" : "Edit", classes };
}

/** Returns what a column besides the usual ones says of a job. */
export function cellOf(job: JobSummary, name: string): Cell {
  const value: Value = valueOf(job, name);
  const isNumber = isNumeric(value, name);
  const text = textOf(value, name);
  const isShown = !isNumber && fits(text);
  return { text, isNumber, title: isShown ? undefined : String(value) };
}

/** Whether a text needs no ellipsis in the narrowest cell: a cell that clips its text is a layer of its own for the browser. */
export function fits(text: string, isNumber = false): boolean {
  return text.length <= (isNumber ? FITS_DIGITS : FITS);
}

/** Whether the reader may change what the column shows of the job. */
function isEdited(job: JobSummary, name: string): boolean {
  return (name === "labels" || name === "notes" || name.startsWith("label:")) && mayChange(job);
}

function textCell(
  name: string,
  text: string,
  title: string | undefined,
  classes: string,
  isNumber = false,
): Drawn {
  return { name, kind: "text", text, title, classes: fits(text, isNumber) ? classes : `${classes} clip` };
}

function placeOf({ devices }: JobSummary, workers: ReadonlyMap<string, string>): string {
  const [first] = devices;
  return first ? placeText(workers.get(first.worker) ?? first.worker, devices) : "";
}

function textOf(value: Value, name: string): string {
  if (value === null) return "";
  if (name.startsWith("metric:")) return number(value as number);
  return typeof value === "number" ? setting(value) : String(value);
}

function valueOf(job: JobSummary, name: string): Value {
  if (name === "labels") return labelsText(job.labels);
  if (name.startsWith("label:")) return own(job.labels, name.slice("label:".length)); // as the stream tells it
  const value = own(job.columns ?? {}, name);
  return value ?? pointValue(job, name);
}

/** Returns what the sweep of a job has set: the service has no column of an option of a script. */
function pointValue({ sweep }: JobSummary, name: string): Value {
  const value = sweep && Object.hasOwn(sweep.point, name) ? plotValue(sweep.point[name]) : null;
  return value;
}

/** A key may be `constructor`, that no object lacks. */
function own(values: Readonly<Record<string, Value>>, key: string): Value {
  return Object.hasOwn(values, key) ? (values[key] ?? null) : null;
}
