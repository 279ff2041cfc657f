/** A part of an axis. */
export interface Span {
  readonly min: number;
  readonly max: number;
}

const LEAST_SHARE = 1e-5;

/** Returns the part with another length, around the same middle (or the place `around`), within `whole`; null for all of it. */
export function zoomed(part: Span, whole: Span, by: number, around = (part.min + part.max) / 2): Span | null {
  const length = Math.max((part.max - part.min) * by, (whole.max - whole.min) * LEAST_SHARE);
  if (length >= whole.max - whole.min) return null;
  const share = (around - part.min) / (part.max - part.min);
  return within({ min: around - share * length, max: around + (1 - share) * length }, whole);
}

/** Returns the part moved by a share of its length, as far as there is something. */
export function panned(part: Span, whole: Span, share: number): Span {
  const by = (part.max - part.min) * share;
  return within({ min: part.min + by, max: part.max + by }, whole);
}

function within({ min, max }: Span, whole: Span): Span {
  const over = Math.min(0, whole.max - max) + Math.max(0, whole.min - min);
  return { min: min + over, max: max + over };
}
