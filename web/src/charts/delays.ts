/** Acts that wait. Asking again for one that waits changes nothing: live points, which never pause, must not put it off. */
export class Delays {
  #timers = new Map<string, ReturnType<typeof setTimeout>>();

  /** Acts once after `wait` milliseconds, however often it is asked for meanwhile. */
  soon(name: string, wait: number, act: () => void): void {
    if (this.#timers.has(name)) return;
    const timer = setTimeout(() => {
      this.#timers.delete(name);
      act();
    }, wait);
    this.#timers.set(name, timer);
  }

  /** Drops all that waits. */
  clear(): void {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
  }
}
