/** The columns of the table of compared jobs, and what their values say beside one another. */
import type { JobView } from "../../api/wire";
import { betterOf, type Better, type Monitored } from "../../plots/direction";
import { duration } from "../../text/duration";
import { natural } from "../../text/natural";
import { number } from "../../text/number";
import { ranFor, type Compared } from "./compared";
import { specRows, type SpecRow } from "./diff";

/** A cell of the table. */
export type Value = number | string | null;

export interface Column {
  /** As the address names it. */
  readonly id: string;
  readonly title: string;
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
  /** Such as `+1.3%`; empty where it says nothing: from 0, to the other side of 0, and beyond tenfold. */
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

/** The most settings that differ in the table; all of them are below it. */
export const MOST_SETTINGS = 8;

const STATES: readonly Value[] = [
/** A change beyond it is told by the values themselves. */
const MOST_PERCENT = 1000;

  ...["running", "starting", "queued", "paused", "succeeded", "failed", "cancelled"],
];
/** What people vary comes first. */
const FIRST = ["config", "args", "resources", "checkpoint", "labels"];

/** Returns the settings that differ, but for the name, with their values. */
export function settingsOf(specs: readonly unknown[]): readonly SpecRow[] {
  const rank = ({ path }: SpecRow): number => {
    const at = FIRST.indexOf(path.split(".")[0] ?? "");
    return at < 0 ? FIRST.length : at;
  };
  return specRows(specs)
    .filter(({ path, isEqual }) => !isEqual && path !== "name")
    .sort((a, b) => rank(a) - rank(b) || (a.path < b.path ? -1 : 1));
}

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
  return [
    words(
      "state",
      "state",
      views.map((view) => view.state),
    ),
    ...settings.map(setting),
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
  const found = values.filter(
    (value): value is number => typeof value === "number" && Number.isFinite(value),
  );
  if (!better || new Set(found).size < 2) return null;
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

function setting({ path, values: all }: SpecRow): Column {
  const values = all.map(settingOf);
  const isNumeric = values.every((value) => value === null || typeof value === "number");
  return {
    ...{ id: `spec:${path}`, title: path, better: null, isNumeric, values },
    texts: values.map((value) => (value === null ? "—" : typeof value === "number" ? plain(value) : value)),
  };
}

/** Returns a value of a setting from its JSON. Lists are one value, as in the differences below the table. */
export function settingOf(text: string | null): Value {
  if (text === null) return null;
  const value: unknown = JSON.parse(text);
  return value === null || typeof value === "number" || typeof value === "string" ? value : text;
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
  return { id, title, better: null, isNumeric: false, values, texts: values };
}

function numbers(
  id: string,
  title: string,
  values: readonly (number | null)[],
  better: Better | null,
): Column {
  return { id, title, better, isNumeric: true, values, texts: values.map((value) => number(value)) };
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
/** Returns a change with as many decimals as the values have that it lies between, unless it is too small for them. */
function changeText(size: number, between: readonly number[]): string {
  const texts = between.map((value) => number(value));
  const decimals = Math.max(...texts.map((text) => text.split(".")[1]?.length ?? 0));
  const found = size.toFixed(decimals);
  return texts.some((text) => text.includes("e")) || Number(found) === 0 ? number(size) : found;
}

}

function isValue(value: Value): boolean {
  return value !== null && !Number.isNaN(value);
}

function signed(value: number, text: (size: number) => string): string {
  return (value < 0 ? "−" : "+") + text(Math.abs(value));
}

function percentText(size: number): string {
  return `${Number(size.toPrecision(size < 100 ? 2 : 3))}%`;
}

function plain(value: number): string {
  return String(Number(value.toPrecision(6)));
}
