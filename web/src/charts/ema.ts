/** The exponential moving average of the service and of TensorBoard: debiased; values that are not finite are skipped. */
export class Ema {
  #sum = 0;
  #count = 0;

  constructor(readonly weight: number) {}

  /** Goes on after `count` finite values whose average is `last`. */
  static after(weight: number, last: number, count: number): Ema {
    const ema = new Ema(weight);
    if (count > 0 && Number.isFinite(last)) {
      ema.#count = count;
      ema.#sum = last * (1 - weight ** count);
    }
    return ema;
  }

  /** Takes one value and returns the average, which is NaN before the first finite value. */
  next(value: number): number {
    if (Number.isFinite(value)) {
      this.#sum = this.#sum * this.weight + value * (1 - this.weight);
      this.#count += 1;
    }
    return this.#count === 0 ? NaN : this.#sum / (1 - this.weight ** this.#count);
  }
}
