/** A part of an axis. */
export interface Span {
  readonly min: number;
  readonly max: number;
}
