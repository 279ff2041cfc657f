/** What a stop would cost, asked before the click. Nobody waits for the answer: without it the action is as it was. */
import { failureOf, post } from "../api/client";
import type { ActionsView, StopView } from "../api/wire";

const FRESH_MS = 10_000;

export class Price {
  /** In a sentence; null while it is not known. */
  text = $state.raw<string | null>(null);
  private askedAt: number | null = null;

  /** `ofMany`: jobs that the page does not name, so the sentence about one says which. */
  constructor(
    private readonly read: () => Promise<StopView | null | undefined>,
    private readonly ofMany: boolean,
  ) {}

  /** Asks, unless that was done just now. */
  ask(): void {
    if (this.askedAt !== null && Date.now() - this.askedAt < FRESH_MS) return;
    this.askedAt = Date.now();
    void this.load();
  }

  private async load(): Promise<void> {
    try {
      const stop = await this.read();
      this.text = stop ? sentenceOf(stop, this.ofMany) : null;
    } catch (error) {
      failureOf(error);
      this.text = null;
    }
  }
}

/** Returns the price of ending or pausing jobs: those with these ids, or those that match. `now`: they are killed. */
export function priceOfJobs(
  action: "cancel" | "pause",
  who: { readonly ids: readonly string[] } | { readonly filter: unknown },
  now = false,
): Price {
  const body = { action, ...who, ...(now ? { now } : {}), dry_run: true };
  const ofMany = !("ids" in who) || who.ids.length > 1;
  return new Price(async () => (await post<ActionsView>("v1/jobs/actions", body)).price, ofMany);
}

function sentenceOf({ message, jobs, total }: StopView, ofMany: boolean): string {
  const whole = /[.!?]$/.test(message) ? message : `${message}.`;
  if (ofMany && total === 1 && jobs[0]?.name) return `${jobs[0].name}: ${whole}`;
  return whole.charAt(0).toUpperCase() + whole.slice(1);
}
