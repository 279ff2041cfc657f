/** The browser's own notifications of one's jobs, while a page of the service is open in it. */
import { failureOf, get } from "../api/client";
import type { EventView, JobView, JobsPage, Page } from "../api/wire";
import { Reading } from "../api/reading.svelte";
import { live } from "../live/live.svelte";
import { href, navigate } from "../router.svelte";
import { Watcher, type Alert, type AlertKind } from "./watcher";

export const KINDS: readonly AlertKind[] = ["ends", "best", "warnings"];

/**
 * `insecure`: the address is plain HTTP on a network; `missing`: this browser has none; else what its user has decided.
 */
export type Permission = "insecure" | "missing" | NotificationPermission;

const KEY = "torchyard-alerts";
const ACTIVE = ["queued", "starting", "running", "paused"];
const MOST_JOBS = 200;
const LOOKS_APART_MS = 15_000;
const READ_MS = 60_000;

class Alerts {
  permission = $state<Permission>(permissionNow());
  /** What it notifies of. Nothing until somebody chooses it. */
  kinds = $state.raw<readonly AlertKind[]>(stored());

  private owner: string | null = null;
  private stopWatching: (() => void) | null = null;

  /** Tells of this user's jobs, as far as that is allowed and chosen, until `stop`. */
  start(owner: string): void {
    this.owner = owner;
    this.update();
  }

  stop(): void {
    this.owner = null;
    this.update();
  }

  /** Asks the user. For a click alone: browsers hold other questions against a page. */
  async ask(): Promise<void> {
    await Notification.requestPermission();
    this.permission = permissionNow();
    if (this.permission === "granted" && this.kinds.length === 0) this.choose(["ends", "warnings"]);
    this.update();
  }

  choose(kinds: readonly AlertKind[]): void {
    this.kinds = kinds;
    try {
      localStorage.setItem(KEY, kinds.join(" "));
    } catch {
      // A browser that stores nothing keeps the choice until the page is closed.
    }
    this.update();
  }

  /** Shows one, to try it. Returns whether the browser has taken it. */
  test(): boolean {
    return show({
      kind: "ends",
      jobId: "",
      tag: "test",
      title: "Torchyard",
      body: "Notifications arrive here.",
    });
  }

  private update(): void {
    const owner = this.permission === "granted" && this.kinds.length > 0 ? this.owner : null;
    if (owner === null) {
      this.stopWatching?.();
      this.stopWatching = null;
    } else this.stopWatching ??= watch(owner, (alert) => this.kinds.includes(alert.kind) && show(alert));
  }
}

export const alerts = new Alerts();

/** Watches jobs of a user until the returned function is called. */
function watch(owner: string, tell: (alert: Alert) => void): () => void {
  const watcher = new Watcher(owner, tell);
  // The stream tells of each job by itself: a list is read for what it may have missed.
  const looking = new Reading((signal) => lookAgain(watcher, owner, signal), LOOKS_APART_MS);
  const stop = live.watch({ topics: ["jobs"] }, (event) => {
    if (event.kind === "job") watcher.take(event.job);
    else if (event.kind === "deleted") watcher.forget(event.jobId);
    else if (event.kind === "changed") looking.again();
  });
  const timer = setInterval(() => void readMessages(watcher), READ_MS);
  void looking.read();
  return () => {
    stop();
    looking.close();
    clearInterval(timer);
  };
}

/** Looks at all jobs that have not ended, and at those that have since: the stream may have missed something. */
async function lookAgain(watcher: Watcher, owner: string, signal: AbortSignal): Promise<void> {
  const page = await get<JobsPage>("v1/jobs", { owner, state: ACTIVE, limit: MOST_JOBS }, signal);
  const active = new Set(page.data.map((job) => job.id));
  const ended = [...watcher.positions().keys()].filter((id) => !active.has(id));
  for (const job of page.data) watcher.take(job);
  for (const id of ended.slice(0, MOST_JOBS)) await lookAt(watcher, id);
}

async function lookAt(watcher: Watcher, id: string): Promise<void> {
  try {
    watcher.take(await get<JobView>(`v1/jobs/${id}`));
  } catch (error) {
    if (failureOf(error).status !== 404) throw error;
    watcher.forget(id);
  }
}

/** Reads the newest messages of each job. */
async function readMessages(watcher: Watcher): Promise<void> {
  for (const [id, after] of watcher.positions()) {
    try {
      const { data } = await get<Page<EventView>>(`v1/jobs/${id}/events`, { after, limit: 200 });
      if (data.some((event) => event.type === "message")) watcher.read(id, await nameOf(id), data);
    } catch (error) {
      if (failureOf(error).status === 404) watcher.forget(id);
    }
  }
}

async function nameOf(id: string): Promise<string> {
  return (await get<JobView>(`v1/jobs/${id}`)).name;
}

function show({ jobId, tag, title, body }: Alert): boolean {
  try {
    const shown = new Notification(title, { body, tag });
    shown.onclick = () => {
      window.focus();
      if (jobId !== "") navigate(href(`jobs/${jobId}`));
      shown.close();
    };
    return true;
  } catch {
    return false; // Chrome on Android shows them by service workers alone
  }
}

function permissionNow(): Permission {
  if (!window.isSecureContext) return "insecure";
  return "Notification" in globalThis ? Notification.permission : "missing";
}

function stored(): readonly AlertKind[] {
  try {
    const found = (localStorage.getItem(KEY) ?? "").split(" ");
    return KINDS.filter((kind) => found.includes(kind));
  } catch {
    return [];
  }
}
