/** What the pages of sweeps say of states, keys and values. */
import type { JobState, SweepState, SweepSummary } from "../../api/wire";
import { shortKeys } from "../../text/keys";
import { number, setting } from "../../text/number";

/** The state of a job whose sign a state of a sweep has. */
export const SIGNS: Readonly<Record<SweepState, JobState>> = {
  running: "running",
  paused: "paused",
  cancelling: "running",
  finished: "succeeded",
  cancelled: "cancelled",
  failed: "failed",
};

const COUNTED = ["succeeded", "running", "queued", "paused", "failed", "cancelled", "waiting"] as const;

export function isEnded(sweep: Pick<SweepSummary, "state">): boolean {
  return sweep.state === "finished" || sweep.state === "cancelled" || sweep.state === "failed";
}

/** Returns how many trials have ended, however they ended. */
export function endedOf(sweep: Pick<SweepSummary, "trials">): number {
  const { succeeded, failed, cancelled } = sweep.trials;
  return succeeded + failed + cancelled;
}

/** Says where the trials are: `2 running, 4 waiting`. */
export function countsText(sweep: Pick<SweepSummary, "trials">): string {
  const found = COUNTED.filter((state) => sweep.trials[state] > 0);
  return found.map((state) => `${sweep.trials[state].toLocaleString("en")} ${state}`).join(", ");
}

/** Says how the values of an argument are written. */
export function writtenAs(key: string, style: string | undefined): string {
  const name = key.replace(/^args\./, "");
  const option = name.startsWith("-") ? name : `--${name}`;
  const written: Readonly<Record<string, string>> = {
    value: `${option} VALUE`,
    equals: `${option}=VALUE`,
    flag: `${option} or nothing`,
    "no-flag": `${option} or --no-${name}`,
    words: `${option} VALUE VALUE …`,
    hydra: `${name}=VALUE`,
    placed: `{${name}} in the arguments`,
  };
  return style === undefined ? "" : (written[style] ?? style);
}

/** Formats a value of a point. */
export function valueText(value: unknown): string {
  if (typeof value === "number") return setting(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Formats a point: `lr 0.1, seed 3`. */
export function pointText(point: Readonly<Record<string, unknown>>): string {
  const names = shortKeys(Object.keys(point));
  return Object.entries(point)
    .map(([key, value]) => `${names.get(key) ?? key} ${valueText(value)}`)
    .join(", ");
}

/** Formats the best trial: `0.9833 of trial 3`. */
export function bestText(best: { readonly value: number | string; readonly trial: number }): string {
  return `${number(best.value)} of trial ${best.trial}`;
}
