/** What passes between the one connection of the browser and its tabs. */
import type { Items, LiveStatus, Topic } from "./events";
import type { JobSummary, LiveLine } from "../api/wire";

/** What somebody wants to hear: jobs with the position after which they begin, and topics. */
export interface Wish {
  readonly jobs: Readonly<Record<string, number>>;
  readonly topics: readonly Topic[];
}

export interface State {
  readonly status: LiveStatus;
  /** Milliseconds until the next try, while the stream does not work. */
  readonly retryIn: number | null;
}

export type FromFeed =
  | { readonly type: "state"; readonly state: State }
  /** All that the job has stored at positions above `from`, up to `items.position`. */
  | { readonly type: "items"; readonly from: number; readonly items: Items }
  | { readonly type: "line"; readonly line: LiveLine }
  | { readonly type: "job"; readonly job: JobSummary }
  | { readonly type: "deleted"; readonly jobId: string }
  | { readonly type: "changed"; readonly topic: Topic }
  /** A stream begins. It tells all of its jobs, but lists may have changed before. */
  | { readonly type: "ready" }
  /** Something may have been missed, or no event comes at all just now: read again. */
  | { readonly type: "missed" }
  | { readonly type: "signed-out" };

export type FromTab =
  /** The session's second secret: a worker cannot read the storage that keeps it. */
  | { readonly type: "session"; readonly secret: string | null }
  | { readonly type: "wish"; readonly wish: Wish }
  | { readonly type: "retry" }
  | { readonly type: "alive" }
  | { readonly type: "leave" };
