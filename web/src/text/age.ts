/** Formats seconds in their largest unit, such as `4s`, `14m`, `2d`: for columns. */
export function age(seconds: number): string {
  if (seconds < 60) return `${Math.max(0, Math.floor(seconds))}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}

/** Returns the seconds since a time of the service, such as a job's `created_at`. */
export function since(time: string, now: number): number {
  return Math.max(0, (now - Date.parse(time)) / 1000);
}
