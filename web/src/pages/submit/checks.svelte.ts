/**
 * What the service says of a draft: what is wrong with it and what it would wait for, asked as one types; and where it
 * would wait, when it would start, asked once the typing has rested for longer.
 */
import { type ApiError, failureOf, post } from "../../api/client";
import type { ProspectView, SpecView, SweepResolved } from "../../api/wire";
import { jobOf } from "../../specs/document";
import type { JsonObject } from "../../specs/json";
import type { Sent } from "../../specs/snippets";

const SETTLED_MS = 250;
const RESTED_MS = 1_000;
const FORECASTS_APART_MS = 15_000;

export interface Wrong {
  /** As the service names it; of a sweep, from its beginning. */
  readonly field: string;
  readonly message: string;
}

export class Checks {
  /** Null until the service has answered for what is written now. */
  wrong = $state.raw<readonly Wrong[] | null>(null);
  prospect = $state.raw<ProspectView | null>(null);
  /** The job spec as it would be stored, with every default; null of a sweep, and until the service has answered. */
  resolved = $state.raw<JsonObject | null>(null);
  /** When the first run of a schedule would be due. */
  firstRun = $state.raw<string | null>(null);
  /** How many trials a sweep has. */
  points = $state.raw<number | null>(null);
  /** Why the service could not be asked. */
  failure = $state.raw<ApiError | null>(null);

  private timer: ReturnType<typeof setTimeout> | undefined;
  private asked = 0;
  /** The document of the forecast, and when that was asked for. */
  private forecast = "";
  private forecastAt = 0;

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
      const written = JSON.stringify(document);
      const prospect =
        written === this.forecast ? withForecast(found.prospect, this.prospect) : found.prospect;
      [this.points, this.prospect, this.wrong, this.failure] = [found.points, prospect, [], null];
      [this.resolved, this.firstRun] = [found.resolved, found.firstRun];
      if (prospect?.position && !prospect.fits) this.forecastSoon(document, written);
    } catch (error) {
      if (number !== this.asked) return;
      [this.points, this.prospect, this.resolved] = [null, null, null];
      const refused = failureOf(error);
      const wrong = wrongOf(refused);
      this.wrong = wrong.length > 0 ? wrong : null;
      this.failure = wrong.length > 0 ? null : refused;
    }
  }

  private forecastSoon(document: JsonObject, written: string): void {
    const number = this.asked;
    const isKnown = written === this.forecast;
    const apart = isKnown ? this.forecastAt + FORECASTS_APART_MS - Date.now() : 0;
    this.timer = setTimeout(
      () => {
        [this.forecast, this.forecastAt] = [written, Date.now()];
        void this.readForecast(document, number);
      },
      Math.max(RESTED_MS, apart),
    );
  }

  /** The page can do without a forecast. */
  private async readForecast(document: JsonObject, number: number): Promise<void> {
    try {
      const found = await post<SpecView>("v1/jobs/validate?forecast=true", jobOf(document));
      if (number === this.asked && found.waits_for) this.prospect = found.waits_for;
    } catch (error) {
      failureOf(error);
    }
  }
}

/** Returns what a job would wait for now with the forecast of before, which is of the same document. */
function withForecast(prospect: ProspectView | null, before: ProspectView | null): ProspectView | null {
  if (!prospect || prospect.fits || !before) return prospect;
  const { estimate = null, later_than = null, starts_if = [] } = before;
  return { ...prospect, estimate, later_than, starts_if };
}

function wrongOf(error: ApiError): readonly Wrong[] {
  return error.status === 422 ? error.errors : [];
}

interface Answer {
  readonly points: number | null;
  readonly prospect: ProspectView | null;
  readonly resolved: JsonObject | null;
  readonly firstRun: string | null;
}

async function ask(document: JsonObject, kind: Sent): Promise<Answer> {
  if (kind === "sweep") {
    const { points } = await post<SweepResolved>("v1/sweeps/validate", document);
    return { points, prospect: null, resolved: null, firstRun: null };
  }
  const found = await post<SpecView>("v1/jobs/validate?place=true", jobOf(document));
  // A schedule's job waits for its time, and then for what there is then.
  const prospect = kind === "schedule" ? null : (found.waits_for ?? null);
  const [resolved, firstRun] = [found.spec as unknown as JsonObject, found.first_run_at ?? null];
  return { points: null, prospect, resolved, firstRun };
}
