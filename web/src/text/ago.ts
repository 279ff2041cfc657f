import { duration } from "./duration";

/** Formats how long ago a time of the service was, such as `14m ago`. */
export function ago(time: string, now: number = Date.now()): string {
  const seconds = (now - Date.parse(time)) / 1000;
  return seconds < 5 ? "just now" : `${duration(seconds)} ago`;
}
