/** Finds out what has happened to somebody's jobs, from what the live stream tells of each. */
import type { EventView, JobState, JobSummary } from "../api/wire";
import { signOf } from "../signs/jobsign";
import { number } from "../text/number";

/** Something that may be notified of. Of one tag a browser shows one, whichever tab says it. */
export interface Alert {
  readonly kind: AlertKind;
  readonly jobId: string;
  readonly tag: string;
  readonly title: string;
  readonly body: string;
}

export type AlertKind = "ends" | "best" | "warnings";

/** By the word of a job's sign. */
const ENDS: Partial<Record<string, string>> = {
  succeeded: "succeeded",
  failed: "failed",
  skipped: "was skipped",
  cancelled: "was cancelled",
  paused: "is paused",
};
const LONGEST = 200;

interface Known {
  readonly state: JobState;
  readonly best: string | null;
  /** The position up to which its messages were read, or were there before. */
  readonly read: number;
}

/** Jobs of one user that have not ended. Jobs of a sweep are left out: there may be thousands. */
export class Watcher {
  private readonly known = new Map<string, Known>();

  constructor(
    private readonly owner: string,
    private readonly tell: (alert: Alert) => void,
  ) {}

  /** Takes a job as it is now. What it was before is not known of the first one, which tells nothing. */
  take(job: JobSummary): void {
    if (job.owner !== this.owner || job.sweep) return;
    const before = this.known.get(job.id);
    const now = {
      state: job.state,
      best: job.best?.checkpoint_id ?? null,
      read: before?.read ?? job.position,
    };
    if (job.finished_at) this.known.delete(job.id);
    else this.known.set(job.id, now);
    if (!before) return;
    const ends = ENDS[signOf(job).word];
    if (ends !== undefined && now.state !== before.state)
      this.tell(
        alert("ends", job, now.state, `${job.name} ${ends}`, job.error?.message ?? job.status_reason.message),
      );
    else if (job.best && now.best !== before.best)
      this.tell(alert("best", job, now.best ?? "", `${job.name} has a new best checkpoint`, bestOf(job)));
  }

  /** Takes messages that a job has stored, up to a position. */
  read(jobId: string, name: string, events: readonly EventView[]): void {
    const before = this.known.get(jobId);
    if (!before) return;
    const newest = events.at(-1);
    if (newest) this.known.set(jobId, { ...before, read: Math.max(before.read, newest.seq) });
    for (const event of events) {
      const { level, text } = event.data;
      if (event.type !== "message" || (level !== "warning" && level !== "error")) continue;
      this.tell(
        alert("warnings", { id: jobId, name }, String(event.seq), `${name} has a warning`, String(text)),
      );
    }
  }

  forget(jobId: string): void {
    this.known.delete(jobId);
  }

  /** Returns the jobs that have not ended, each with the position up to which its messages were read. */
  positions(): ReadonlyMap<string, number> {
    return new Map([...this.known].map(([id, { read }]) => [id, read]));
  }
}

function alert(
  kind: AlertKind,
  job: Pick<JobSummary, "id" | "name">,
  what: string,
  title: string,
  body: string,
): Alert {
  return { kind, jobId: job.id, tag: `${job.id} ${what}`, title, body: body.slice(0, LONGEST) };
}

function bestOf({ best }: JobSummary): string {
  return best ? `${best.metric} is ${number(best.value)} at step ${best.step}` : "";
}
