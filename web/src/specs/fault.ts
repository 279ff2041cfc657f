/** Raised for a text that the page cannot read as one YAML mapping. */
export class Fault extends Error {
  constructor(
    message: string,
    /** From 1. */
    readonly line: number,
  ) {
    super(message);
  }
}
