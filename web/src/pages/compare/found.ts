/** Jobs that an address finds by a filter, instead of naming them: as many as a plot shows. */
import type { ColumnView, JobSummary } from "../../api/wire";
import type { Named, PlotRow, PlotValue } from "../../plots/rows";
import { plotValue } from "../../plots/sweep";
import { measured, metricsOf, settingsOf } from "../../runs/suggested";
import { shortKeys } from "../../text/keys";

/** What is plotted of a job. */
export type Row = Pick<JobSummary, "id" | "name" | "columns" | "sweep">;

/** As many columns as the service answers at once. */
const MOST_SETTINGS = 20;
const MOST_METRICS = 10;

/**
 * Returns the columns to ask for: settings that differ, and metrics. Of a metric that should be small the least value
 * is shown, of one that should be great the greatest, of others the newest.
 */
export function columnsFor(known: readonly ColumnView[]): readonly Named[] {
  const settings = settingsOf(known).slice(0, MOST_SETTINGS);
  const ranked = metricsOf(known).slice(0, MOST_METRICS);
  const titles = shortKeys([...settings, ...ranked]);
  return [
    ...settings.map((key) => ({ key, title: titles.get(key) ?? key, isMetric: false, better: null })),
    ...ranked.map(metricColumn),
  ];
}

/** Adds what the trials of a sweep set beside the spec's own keys, such as the options of a script. */
export function withPoints(named: readonly Named[], jobs: readonly Row[]): readonly Named[] {
  const known = new Set(named.map(({ key }) => key));
  const points = new Set(jobs.flatMap(({ sweep }) => Object.keys(sweep?.point ?? {})));
  const added = [...points].filter((key) => !known.has(key));
  const titles = shortKeys([...added, ...named.map(({ key, title, isMetric }) => (isMetric ? title : key))]);
  return [
    ...added.map((key) => ({ key, title: titles.get(key) ?? key, isMetric: false, better: null })),
    ...named.filter(({ key }) => added.length === 0 || key !== "config.args"),
  ];
}

/** Returns the jobs with the values of their columns, and of their points. */
export function rowsOf(jobs: readonly Row[], named: readonly Named[]): readonly PlotRow[] {
  const metrics = new Set(named.filter(({ isMetric }) => isMetric).map(({ key }) => key));
  return jobs.map(({ id, name, columns, sweep }) => ({
    id,
    name,
    values: Object.fromEntries(
      Object.entries({ ...columns, ...sweep?.point }).map(([key, value]): [string, PlotValue] => [
        key,
        metrics.has(key) && value !== null ? Number(value) : plotValue(value),
      ]),
    ),
  }));
}

function metricColumn(metric: string): Named {
  const { key, column, better } = measured(metric);
  const word = better === "min" ? "least " : better === "max" ? "greatest " : "";
  return { key: column, title: `${word}${key}`, isMetric: true, better };
}
