/** Edits of rows: shown at once, and taken back if the service refuses them. */
import { type ApiError, failureOf } from "../../api/client";
import type { JobSummary } from "../../api/wire";
import { label, labelChanges, star } from "./edits";

type Change = (id: string, changes: Partial<JobSummary>) => void;

export class Edits {
  /** Why the newest edit was refused. */
  failure = $state.raw<ApiError | null>(null);
  /** The job whose notes are being edited. */
  notesOf = $state.raw<JobSummary | null>(null);

  /** `change` shows changes of a row. */
  constructor(private readonly change: Change) {}

  star(job: JobSummary): Promise<void> {
    const starred = !job.starred;
    return this.run(job, { starred }, { starred: !starred }, () => star(job.id, starred));
  }

  async labelsText(job: JobSummary, text: string): Promise<void> {
    const changes = labelChanges(job.labels, text);
    if (changes !== null) await this.label(job, changes);
  }

  label(job: JobSummary, changes: Readonly<Record<string, string | null>>): Promise<void> {
    const next = Object.entries({ ...job.labels, ...changes }).filter(([, value]) => value !== null);
    const labels = Object.fromEntries(next) as Record<string, string>;
    return this.run(job, { labels }, { labels: job.labels }, () => label(job.id, changes));
  }

  openNotes(job: JobSummary): void {
    this.failure = null;
    this.notesOf = job;
  }

  /** Shows the notes that were stored. */
  closeNotes(notes: string | null): void {
    const job = this.notesOf;
    this.notesOf = null;
    if (job === null || notes === null) return;
    const first = notes.split("\n").find((line) => line.trim() !== "") ?? null;
    this.change(job.id, {
      has_notes: notes !== "",
      ...(job.columns ? { columns: { ...job.columns, notes: first?.trim().slice(0, 200) ?? null } } : {}),
    });
  }

  private async run(
    job: JobSummary,
    shown: Partial<JobSummary>,
    before: Partial<JobSummary>,
    send: () => Promise<void>,
  ): Promise<void> {
    this.failure = null;
    this.change(job.id, shown);
    try {
      await send();
    } catch (error) {
      this.change(job.id, before);
      this.failure = failureOf(error);
    }
  }
}
