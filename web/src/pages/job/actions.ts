/** What one may do with a job: the one action that fits its state, and all others for a menu. */
import type { JobView } from "../../api/wire";
import { isOwn, may, mayChange, mayKill } from "../../shell/rights";

export type Action =
  | "stop"
  | "kill"
  | "pause"
  | "resume"
  | "retry"
  | "clone"
  | "download"
  | "stacks"
  | "terminal"
  | "port"
  | "share"
  | "notes"
  | "archive"
  | "unarchive"
  | "delete";

export const NAMES: Readonly<Record<Action, string>> = {
  stop: "Stop",
  kill: "Kill",
  pause: "Pause",
  resume: "Resume",
  retry: "Retry",
  clone: "Clone",
  download: "Download best",
  stacks: "Show stacks",
  terminal: "Terminal",
  port: "Open port",
  share: "Share link",
  notes: "Write notes",
  archive: "Archive",
  unarchive: "Unarchive",
  delete: "Delete",
};

/** Returns what the account may do with the job now, by groups of the menu. Reactive. */
export function actionsOf(job: JobView): readonly (readonly Action[])[] {
  const mine = mayChange(job);
  const isEnded = job.state === "succeeded" || job.state === "failed" || job.state === "cancelled";
  const isOpen = job.state === "starting" || job.state === "running";
  const isStopping = !isEnded && job.status_reason.code === "stopping";
  const mayWrite = may("jobs:write");
  const run: (Action | false)[] = [
    mine && job.state === "paused" && "resume",
    mine && (isOpen || job.state === "queued") && "pause",
    mine && !isEnded && "stop",
    // An operator ends the jobs of others by force alone.
    !isEnded && (isStopping || !mine) && mayKill(job) && "kill",
    mayWrite && isEnded && job.state !== "succeeded" && "retry",
    mayWrite && "clone",
  ];
  const see: (Action | false)[] = [
    Boolean(job.best) && "download",
    mine && isOpen && "stacks",
    ...(isOwn(job) && job.state === "running" ? (["terminal", "port"] as const) : []),
    "share",
    mine && "notes",
  ];
  const away: (Action | false)[] = [
    mine && isEnded && (job.archived ? "unarchive" : "archive"),
    mine && isEnded && "delete",
  ];
  return [run, see, away].map((group) => group.filter((action) => action !== false));
}

/** Returns the action of the main button for the state of a job; null if it is not among those offered. */
export function mainAction(job: JobView, offered: readonly (readonly Action[])[]): Action | null {
  const all = offered.flat();
  return wantedOf(job).find((action) => all.includes(action)) ?? null;
}

/** Reasons of failures that no change of the spec would have prevented. */
const NOT_ITS_FAULT: readonly string[] = ["worker_lost", "device_fault"];

function wantedOf(job: JobView): readonly Action[] {
  if (job.state === "succeeded") return ["download", "clone"];
  if (job.state === "failed" && NOT_ITS_FAULT.includes(job.error?.code ?? "")) return ["retry", "clone"];
  if (job.state === "failed" || job.state === "cancelled") return ["clone"];
  return job.state === "paused" ? ["resume", "clone"] : ["stop", "clone"];
}
