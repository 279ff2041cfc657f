/** A sweep's trials as what plots show. */
import type { SweepView, TrialView } from "../api/wire";
import { shortKeys } from "../text/keys";
import type { Better } from "./direction";
import type { Named, PlotRow, PlotValue } from "./rows";

/** Returns the trials whose jobs are still there. */
export function trialRows(sweep: SweepView, trials: readonly TrialView[]): readonly PlotRow[] {
  return trials.flatMap(({ job_id, number, point, value }): readonly PlotRow[] => {
    if (!job_id) return [];
    const settings = Object.entries(point).map(([key, set]) => [key, plotValue(set)] as const);
    const values = Object.fromEntries([...settings, [sweep.monitor, value === null ? null : Number(value)]]);
    return [{ id: job_id, name: `${sweep.name}-${number}`, values }];
  });
}

/** Returns what varies, logarithmic as its range says, and the metric that ranks. */
export function trialVariables(sweep: SweepView, trials: readonly TrialView[]): readonly Named[] {
  const keys = new Set(trials.flatMap(({ point }) => Object.keys(point)));
  const titles = shortKeys([...keys, sweep.monitor]);
  const settings = [...keys].map((key): Named => {
    const title = titles.get(key) ?? key;
    const isLog = isLogOf(sweep.spec.parameters[key]);
    const found = { key, title, isMetric: false, better: null };
    return isLog === undefined ? found : { ...found, isLog };
  });
  const better: Better = sweep.mode;
  return [...settings, { key: sweep.monitor, title: sweep.monitor, isMetric: true, better }];
}

/** An argument of a program keeps the text that was typed, such as 1e-4. */
const TYPED = /^[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?$/i;
const IS_FRACTION = /[.e]/i;

/** Returns a JSON value as a plot takes it: numbers, also typed ones, and text as they are, others as their JSON. */
export function plotValue(value: unknown): PlotValue {
  if (value === null || value === undefined) return null;
  if (typeof value === "string" && TYPED.test(value) && IS_FRACTION.test(value)) return Number(value);
  return typeof value === "number" || typeof value === "string" ? value : JSON.stringify(value);
}

/** A list of values does not say it. */
function isLogOf(range: unknown): boolean | undefined {
  return typeof range === "object" && range !== null && "log" in range ? range.log === true : undefined;
}
