/** Compared jobs as what plots show: settings that differ against metrics. */
import type { JobView } from "../../api/wire";
import { betterOf } from "../../plots/direction";
import type { Named, PlotRow, PlotValue } from "../../plots/rows";
import { monitoredOf, numberOf } from "./columns";
import { metricKeys } from "./compared";
import { settingOf, settingsOf, titlesOf } from "./settings";

export interface Plotted {
  readonly rows: readonly PlotRow[];
  readonly named: readonly Named[];
}

/** Metrics that may be an axis. */
const MOST_METRICS = 12;

/** Returns the jobs with their settings that differ, their best value, and the newest of their metrics. */
export function plottedOf(jobs: readonly JobView[]): Plotted {
  const settings = settingsOf(jobs.map((job) => job.spec));
  const watched = jobs.flatMap(monitoredOf);
  const monitors = [...new Set(jobs.flatMap((job) => job.best?.metric ?? []))];
  const keys = metricKeys(jobs).slice(0, MOST_METRICS);
  const titles = titlesOf(settings, keys);
  const rows = jobs.map((job, place): PlotRow => {
    const values: Record<string, PlotValue> = {};
    for (const { path, values: all } of settings) values[path] = settingOf(all[place] ?? null);
    if (job.best) values[`best:${job.best.metric}`] = numberOf(job.best.value);
    for (const key of keys) values[`last:${key}`] = numberOf(job.metrics[key]);
    return { id: job.id, name: job.name, values };
  });
  return {
    rows,
    named: [
      ...[...titles].map(([key, title]) => ({ key, title, isMetric: false, better: null })),
      ...monitors.map((key) => metric(`best:${key}`, `best ${key}`, betterOf(key, watched))),
      ...keys.map((key) => metric(`last:${key}`, key, betterOf(key, watched))),
    ],
  };
}

function metric(key: string, title: string, better: Named["better"]): Named {
  return { key, title, isMetric: true, better };
}
