/** The text is no document that the page takes. */
export class Fault extends Error {
  constructor(
    message: string,
    /** From 1. */
    readonly line: number,
  ) {
    super(message);
  }
}
