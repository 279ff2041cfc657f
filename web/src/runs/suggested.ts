/** What a table of runs shows until somebody chooses: what most of them have measured, and what differs between them. */
import type { ColumnsView, ColumnView, JobSummary } from "../api/wire";
import { betterOf, type Better } from "../plots/direction";

/** Where the code is from is one setting. */
export const OF_CODE = /^config\.(code$|git\.|left_out$)/;

const MOST_METRICS = 3;
const MOST_SETTINGS = 4;

/** A metric as one value of each run: of one that should be small the least, of one that should be great the greatest, else the newest. */
export interface Measured {
  readonly key: string;
  /** The name of the column. */
  readonly column: string;
  readonly better: Better | null;
}

/**
 * Returns the columns of these jobs: a metric that most of them have, the settings that differ, and other metrics.
 *
 * `known`: what the service says of their columns. `monitor`: the metric that most of them watch, which comes first.
 */
export function suggested(
  known: ColumnsView,
  jobs: readonly Pick<JobSummary, "sweep">[],
  monitor: string | null,
): readonly string[] {
  const common = known.data.filter((column) => 2 * column.jobs > known.jobs);
  const metrics = metricsOf(common).sort((a, b) => Number(b === monitor) - Number(a === monitor));
  const varied = variedOf(jobs);
  const settings = settingsOf(known.data).filter((name) => !varied.includes(name) && !isArgs(name, varied));
  const [first = [], ...others] = metrics.slice(0, MOST_METRICS).map((key) => [measured(key).column]);
  return [...first, ...[...varied, ...settings].slice(0, MOST_SETTINGS), ...others.flat()];
}

/** Returns the settings that differ, those of most jobs first. */
export function settingsOf(known: readonly ColumnView[]): readonly string[] {
  return byJobs(known)
    .filter(({ name, differs }) => differs && isSetting(name))
    .map(({ name }) => name);
}

/** Returns the keys of metrics: evaluation before training, what has a direction before others. */
export function metricsOf(known: readonly ColumnView[]): string[] {
  const keys = byJobs(known).flatMap(({ name }) => /^metric:(.+):last$/.exec(name)?.[1] ?? []);
  return keys.sort((a, b) => rank(a) - rank(b));
}

export function measured(key: string): Measured {
  const better = betterOf(key);
  return { key, column: `metric:${key}:${better ?? "last"}`, better };
}

/** Returns what the sweeps of these jobs vary, such as the options of a script, where it differs between them. */
function variedOf(jobs: readonly Pick<JobSummary, "sweep">[]): readonly string[] {
  const values = new Map<string, Set<string>>();
  for (const { sweep } of jobs)
    for (const [key, value] of Object.entries(sweep?.point ?? {}))
      values.set(key, (values.get(key) ?? new Set()).add(JSON.stringify(value)));
  return [...values].filter(([, different]) => different.size > 1).map(([key]) => key);
}

/** All options of a script together say nothing more than each of them. */
function isArgs(name: string, varied: readonly string[]): boolean {
  return name === "config.args" && varied.some((key) => key.startsWith("args."));
}

/** Names and notes tell runs apart, but set nothing. Of the code, the commit is enough. */
function isSetting(name: string): boolean {
  if (OF_CODE.test(name)) return name === "config.git.commit";
  return !name.startsWith("metric:") && name !== "name" && name !== "notes";
}

function byJobs(known: readonly ColumnView[]): readonly ColumnView[] {
  return [...known].sort((a, b) => b.jobs - a.jobs);
}

function rank(key: string): number {
  return (key.startsWith("val/") ? 0 : key.startsWith("train/") ? 2 : 4) + (betterOf(key) ? 0 : 1);
}
