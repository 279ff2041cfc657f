import { duration } from "./duration";

/** Formats how soon a time of the service is, such as `in 14m`. */
export function until(time: string, now: number): string {
  const seconds = (Date.parse(time) - now) / 1000;
  return seconds < 1 ? "now" : `in ${duration(seconds)}`;
}
