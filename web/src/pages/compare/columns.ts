/** The columns of the table of compared jobs, and what their values say beside one another. */
import type { JobView } from "../../api/wire";
import { betterOf, type Better, type Monitored } from "../../plots/direction";
import { duration } from "../../text/duration";
import { natural } from "../../text/natural";
import { number, setting as settingNumber } from "../../text/number";
import { visible } from "../../code/visible";
import { ranFor, type Compared } from "./compared";
import type { SpecRow } from "./diff";
import { settingOf, titlesOf } from "./settings";

/** A cell of the table. */
export type Value = number | string | null;

export interface Column {
  /** As the address names it. */
  readonly id: string;
  readonly title: string;
  /** The whole name of what has a short title. */
  readonly name: string;
  /** Which way it is better; null where nothing says so. */
  readonly better: Better | null;
  readonly isNumeric: boolean;
  /** One for each job, in their order. */
  readonly values: readonly Value[];
  readonly texts: readonly string[];
}

export interface Delta {
  /** Such as `+0.012`. */
  readonly text: string;
  /** Such as `+1.3%`. Empty if the baseline is 0, the signs differ, or the change is ten times the baseline or more. */
  readonly percent: string;
  readonly verdict: "better" | "worse" | "equal" | null;
}

/** The least and the greatest value that a job has logged of a metric. */
export interface Extreme {
  readonly low: number;
  readonly high: number;
}

/** By the metric's key. */
export type ExtremesOf = ReadonlyMap<string, Extreme>;

/** Of a change beyond it the values themselves are enough. */
const MOST_PERCENT = 1000;

/** The most settings that differ in the table; all of them are below it. */
export const MOST_SETTINGS = 8;

const STATES: readonly Value[] = [
  ...["running", "starting", "queued", "paused", "succeeded", "failed", "cancelled"],
];
/**
 * Returns the columns but the name: state, settings, the best value, metrics, the time. Metrics have their newest
 * values; with `extremes` their best ones, where it is known which way they are better.
 */
export function columnsOf(
  jobs: readonly Compared[],
  settings: readonly SpecRow[],
  metrics: readonly string[],
  now: number,
  extremes: ReadonlyMap<string, ExtremesOf> | null = null,
): readonly Column[] {
  const views = jobs.map((job) => job.view);
  const watched = views.flatMap(monitoredOf);
  const monitors = new Set(views.flatMap((view) => view.best?.metric ?? []));
  const titles = titlesOf(settings, metrics);
  return [
    words(
      "state",
      "state",
      views.map((view) => view.state),
    ),
    ...settings.map((row) => setting(row, titles.get(row.path) ?? row.path)),
    ...(monitors.size === 0 ? [] : [bestColumn(views, watched)]),
    ...metrics.map((key) => metric(key, jobs, betterOf(key, watched), extremes)),
    {
      ...numbers(
        "ran",
        "ran for",
        views.map((view) => ranFor(view, now)),
        null,
      ),
      texts: views.map((view) => ((ran) => (ran === null ? "—" : duration(ran)))(ranFor(view, now))),
    },
  ];
}

/** What each job watches; where all watch the same, its name is the head's. */
function bestColumn(views: readonly JobView[], watched: readonly Monitored[]): Column {
  const [only = "", ...others] = new Set(views.flatMap((view) => view.best?.metric ?? []));
  const isOne = others.length === 0;
  const values = views.map((view) => numberOf(view.best?.value));
  const found = numbers(
    "best",
    isOne ? `best ${only}` : "best",
    values,
    isOne ? betterOf(only, watched) : null,
  );
  if (isOne) return found;
  const texts = views.map(({ best }, i) => (best ? `${best.metric} ${found.texts[i] ?? ""}` : "—"));
  return { ...found, texts };
}

/** Returns the places of the jobs in the order of a column's values, those without one last. `by` is its id, with a `-` for the other way. */
export function orderOf(columns: readonly Column[], names: readonly string[], by: string): readonly number[] {
  const places = names.map((_, place) => place);
  const id = by.replace(/^-/, "");
  const values: readonly Value[] | undefined =
    id === "name" ? names : columns.find((column) => column.id === id)?.values;
  if (!values) return places;
  const sign = by.startsWith("-") ? -1 : 1;
  return places.sort((a, b) => compare(values[a] ?? null, values[b] ?? null, sign, id === "state"));
}

/** Returns the best finite value of a column; null where none is better than another. */
export function bestOf({ values, better }: Column): number | null {
  const all = new Set(values.filter((value) => typeof value === "number"));
  const found = [...all].filter(Number.isFinite);
  if (!better || all.size < 2 || found.length === 0) return null;
  return better === "min" ? Math.min(...found) : Math.max(...found);
}

/** Returns how a value differs from that of the baseline; null where one of them is no number. */
export function deltaOf(value: Value, base: Value, better: Better | null): Delta | null {
  if (typeof value !== "number" || typeof base !== "number") return null;
  if (!Number.isFinite(value) || !Number.isFinite(base)) return null;
  const change = value - base;
  if (change === 0) return { text: "=", percent: "", verdict: "equal" };
  const percent = (100 * change) / Math.abs(base);
  return {
    text: signed(change, (size) => changeText(size, [value, base])),
    percent: value * base >= 0 && Math.abs(percent) < MOST_PERCENT ? signed(percent, percentText) : "",
    verdict: better === null ? null : change < 0 === (better === "min") ? "better" : "worse",
  };
}

/** Returns which metric a job watches. */
export function monitoredOf({ spec }: JobView): readonly Monitored[] {
  const policy = (spec as { checkpoint?: Monitored }).checkpoint;
  return policy ? [policy] : [];
}

function setting({ path, values: all }: SpecRow, title: string): Column {
  const values = all.map(settingOf);
  const isNumeric = values.every((value) => value === null || typeof value === "number");
  const texts = values.map((value, i) => settingText(value, all[i] ?? null));
  return { id: `spec:${path}`, title, name: path, better: null, isNumeric, values, texts };
}

/** A setting that is null is one; one that is not there is a dash. */
function settingText(value: Value, json: string | null): string {
  if (value === null) return json ?? "—";
  return typeof value === "number" ? plain(value) : visible(value);
}

function metric(
  key: string,
  jobs: readonly Compared[],
  better: Better | null,
  extremes: ReadonlyMap<string, ExtremesOf> | null,
): Column {
  if (!extremes || better === null) {
    const newest = jobs.map(({ view }) => numberOf(view.metrics[key]));
    return numbers(`metric:${key}`, key, newest, better);
  }
  const found = jobs.map(({ id }) => extremes.get(id)?.get(key));
  const values = found.map((one) => (one ? (better === "min" ? one.low : one.high) : null));
  return numbers(`metric:${key}`, `${better === "min" ? "least" : "greatest"} ${key}`, values, better);
}

function words(id: string, title: string, values: readonly string[]): Column {
  return { id, title, name: title, better: null, isNumeric: false, values, texts: values };
}

function numbers(
  id: string,
  title: string,
  values: readonly (number | null)[],
  better: Better | null,
): Column {
  return {
    ...{ id, title, name: title, better, isNumeric: true, values },
    texts: values.map((value) => number(value)),
  };
}

/** Returns a number of the service as one; NaN and infinities come as text. */
export function numberOf(value: number | string | null | undefined): number | null {
  return value === null || value === undefined ? null : Number(value);
}

function compare(a: Value, b: Value, sign: number, isState: boolean): number {
  const [hasA, hasB] = [isValue(a), isValue(b)];
  if (!hasA || !hasB) return Number(hasB) - Number(hasA);
  if (isState) return sign * (STATES.indexOf(a) - STATES.indexOf(b));
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * natural(String(a), String(b));
}

function isValue(value: Value): boolean {
  return value !== null && !Number.isNaN(value);
}

function signed(value: number, text: (size: number) => string): string {
  return (value < 0 ? "−" : "+") + text(Math.abs(value));
}

/** Returns a change with as many decimals as the values have that it lies between, unless it is too small for them. */
function changeText(size: number, between: readonly number[]): string {
  const texts = between.map((value) => number(value));
  const decimals = Math.max(...texts.map((text) => text.split(".")[1]?.length ?? 0));
  const found = size.toFixed(decimals);
  return texts.some((text) => text.includes("e")) || Number(found) === 0 ? number(size) : found;
}

function percentText(size: number): string {
  return `${Number(size.toPrecision(size < 100 ? 2 : 3))}%`;
}

function plain(value: number): string {
  return settingNumber(value);
}
