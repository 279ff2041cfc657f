/** What the service says of a draft, asked as one types: what is wrong with it, and what it would wait for. */
import { ApiError, post } from "../../api/client";
import type { ProspectView, SpecView, SweepResolved } from "../../api/wire";
import { jobOf } from "../../specs/document";
import type { JsonObject } from "../../specs/json";
import type { Sent } from "../../specs/snippets";

const SETTLED_MS = 250;

export interface Wrong {
  /** As the service names it; of a sweep, from its beginning. */
  readonly field: string;
  readonly message: string;
}

export class Checks {
  /** Null until the service has answered for what is written now. */
  wrong = $state.raw<readonly Wrong[] | null>(null);
  prospect = $state.raw<ProspectView | null>(null);
  /** How many trials a sweep has. */
  points = $state.raw<number | null>(null);
  /** Why the service could not be asked. */
  failure = $state.raw<ApiError | null>(null);

  private timer: ReturnType<typeof setTimeout> | undefined;
  private asked = 0;

  /** Asks once the typing rests. */
  ask(document: JsonObject, kind: Sent): void {
    this.stop();
    this.wrong = null;
    this.timer = setTimeout(() => void this.send(document, kind), SETTLED_MS);
  }

  /** Forgets what was asked. */
  stop(): void {
    clearTimeout(this.timer);
    this.asked++;
  }

  /** Shows the errors with which a submission was refused. */
  refuse(error: ApiError): void {
    this.stop();
    this.wrong = wrongOf(error);
    this.failure = this.wrong.length === 0 ? error : null;
  }

  private async send(document: JsonObject, kind: Sent): Promise<void> {
    const number = this.asked;
    try {
      const found = await ask(document, kind);
      if (number !== this.asked) return;
      [this.points, this.prospect, this.wrong, this.failure] = [found.points, found.prospect, [], null];
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (number !== this.asked) return;
      [this.points, this.prospect] = [null, null];
      const wrong = wrongOf(error);
      this.wrong = wrong.length > 0 ? wrong : null;
      this.failure = wrong.length > 0 ? null : error;
    }
  }
}

function wrongOf(error: ApiError): readonly Wrong[] {
  return error.status === 422 ? error.errors : [];
}

async function ask(
  document: JsonObject,
  kind: Sent,
): Promise<{ points: number | null; prospect: ProspectView | null }> {
  if (kind === "sweep") {
    const { points } = await post<SweepResolved>("v1/sweeps/validate", document);
    return { points, prospect: null };
  }
  const found = await post<SpecView>("v1/jobs/validate?place=true", jobOf(document));
  // A schedule's job waits for its time, and then for what there is then.
  return { points: null, prospect: kind === "schedule" ? null : (found.waits_for ?? null) };
}
