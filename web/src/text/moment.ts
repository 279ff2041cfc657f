/** A moment in the reader's time zone, in the one form that all pages have: `2026-11-30 04:26:05`. */
export function momentText(time: string | number): string {
  return new Date(time).toLocaleString("sv-SE");
}

/** The time zone of the reader, such as `Europe/Berlin`. */
export const ZONE = new Intl.DateTimeFormat().resolvedOptions().timeZone;
