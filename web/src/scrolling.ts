/** How far each entry of the browser's history was scrolled: a page that is read anew is too short when the browser asks. */
export class Scrolling {
  /** By the numbers of entries. */
  readonly #offsets = new Map<number, number>();
  #entry = 0;
  #newest = 0;
  /** The frame in which the page is scrolled again, while it is not as long as it was. */
  #frame = 0;

  /** Returns the state of an entry that begins now. */
  begin(): { entry: number } {
    this.#stop();
    this.#entry = this.#newest += 1;
    return { entry: this.#entry };
  }

  /** Scrolls the page of an entry to where it was left, as soon as it is that long. */
  goTo(state: unknown): void {
    this.#stop();
    this.#entry = entryOf(state);
    this.#scroll(this.#offsets.get(this.#entry) ?? 0, performance.now());
  }

  /** Notes how far the entry that is shown is scrolled. Returns how to stop. */
  start(): () => void {
    this.#entry = entryOf(history.state);
    this.#newest = Math.max(this.#newest, this.#entry);
    history.scrollRestoration = "manual";
    const note = (): void => {
      if (this.#frame === 0) this.#offsets.set(this.#entry, window.scrollY);
    };
    const stop = (): void => this.#stop();
    window.addEventListener("scroll", note, { passive: true });
    for (const kind of BY_HAND) window.addEventListener(kind, stop, { passive: true });
    return () => {
      this.#stop();
      window.removeEventListener("scroll", note);
      for (const kind of BY_HAND) window.removeEventListener(kind, stop);
    };
  }

  #scroll(offset: number, since: number): void {
    this.#frame = requestAnimationFrame((now) => {
      window.scrollTo(0, offset);
      if (now - since < PATIENCE_MS) this.#scroll(offset, since);
      else this.#frame = 0;
    });
  }

  #stop(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
  }
}

/** How long a page may take to be as long as it was. Who scrolls meanwhile goes where they want. */
const PATIENCE_MS = 1_500;
const BY_HAND = ["wheel", "touchstart", "keydown", "pointerdown"] as const;

function entryOf(state: unknown): number {
  const entry = (state as { entry?: unknown } | null)?.entry;
  return typeof entry === "number" ? entry : 0;
}
