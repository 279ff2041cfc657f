/** Asks where the ranks of a running job are, and waits for the answer of its worker, which nothing announces. */
import { ApiError, failureOf, get, post } from "../../api/client";
import type { StacksView } from "../../api/wire";

const AGAIN_MS = 1_000;
const MOST_TRIES = 15;

export class Stacks {
  found = $state.raw<StacksView | null>(null);
  failure = $state.raw<ApiError | null>(null);
  isWaiting = $state(false);

  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly jobId: string) {}

  /** Asks anew. What was found before is shown until the answer. */
  async ask(): Promise<void> {
    if (this.isWaiting) return;
    this.isWaiting = true;
    this.failure = null;
    await this.take(() => post<StacksView>(`v1/jobs/${this.jobId}/stacks`), MOST_TRIES);
  }

  close(): void {
    clearTimeout(this.timer);
  }

  private async take(read: () => Promise<StacksView>, left: number): Promise<void> {
    try {
      const answer = await read();
      if (answer.taken_at === null || answer.taken_at === undefined) {
        this.again(left);
        return;
      }
      this.found = answer;
    } catch (error) {
      this.failure = failureOf(error);
    }
    this.isWaiting = false;
  }

  private again(left: number): void {
    if (left === 0) {
      this.failure = new ApiError(
        408,
        "timeout",
        "The worker has not answered: it is preparing the job, or offline.",
      );
      this.isWaiting = false;
      return;
    }
    const read = (): Promise<StacksView> => get<StacksView>(`v1/jobs/${this.jobId}/stacks`);
    this.timer = setTimeout(() => void this.take(read, left - 1), AGAIN_MS);
  }
}
