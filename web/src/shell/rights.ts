/** What the account of this session may do, as the service decides it: the page offers nothing that would be refused. */
import type { JobSummary, MeView } from "../api/wire";
import { session } from "./session.svelte";

type Scope = MeView["scopes"][number];

/** Says whether the session has a scope: its role, and the token that opened it, give them. Reactive. */
export function may(scope: Scope): boolean {
  return session.me?.scopes.includes(scope) ?? false;
}

/** Says whether the job is the account's own, and the account may have jobs. Reactive. */
export function isOwn(job: Pick<JobSummary, "owner">): boolean {
  return may("jobs:write") && session.me?.name === job.owner;
}

/** Says whether the account may cancel, pause, resume and delete the job: one's own, and an administrator any. Reactive. */
export function mayChange(job: Pick<JobSummary, "owner">): boolean {
  const { me } = session;
  return may("jobs:write") && (me?.role === "admin" || me?.name === job.owner);
}

/** Says whether the account may end the job by force: an operator any. Reactive. */
export function mayKill(job: Pick<JobSummary, "owner">): boolean {
  return mayChange(job) || (may("jobs:write") && session.me?.role === "operator");
}
