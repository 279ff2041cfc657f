/** Lets the newest of several requests count: an answer to one before it may come later. */

export class NewestRequest {
  private request = new AbortController();

  /** Ends the request before, and returns the signal of the one that begins. What it has aborted is to be ignored. */
  begin(): AbortSignal {
    this.request.abort();
    this.request = new AbortController();
    return this.request.signal;
  }

  /** Ends the request, and begins none. */
  end(): void {
    this.request.abort();
  }
}
