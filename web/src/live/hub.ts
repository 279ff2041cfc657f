/** Joins the wishes of several tabs, and tells each tab what it asked for. */
import { hold } from "../api/secret";
import type { Topic } from "./events";
import { Feeds } from "./feeds";
import type { FromFeed, FromTab, Wish } from "./messages";

const NOTHING: Wish = { jobs: {}, topics: [] };
const GONE_MS = 180_000; // a hidden tab's timers may run once a minute

interface Tab {
  wish: Wish;
  heardAt: number;
}

export class Hub<Port> {
  private readonly tabs = new Map<Port, Tab>();
  private readonly feeds: Feeds;

  constructor(
    private readonly post: (port: Port, message: FromFeed) => void,
    request?: typeof fetch,
  ) {
    this.feeds = new Feeds((message) => this.received(message), request);
  }

  join(port: Port): void {
    this.tabs.set(port, { wish: NOTHING, heardAt: Date.now() });
    this.post(port, { type: "state", state: this.feeds.now() });
  }

  take(port: Port, message: FromTab): void {
    if (message.type === "leave") {
      this.tabs.delete(port);
      this.ask();
      return;
    }
    const tab = this.tabs.get(port) ?? { wish: NOTHING, heardAt: 0 };
    tab.heardAt = Date.now();
    this.tabs.set(port, tab);
    if (message.type === "session") hold(message.secret);
    if (message.type === "retry") this.feeds.retry();
    if (message.type !== "wish") return;
    const added = Object.keys(message.wish.jobs).filter((id) => !(id in tab.wish.jobs));
    tab.wish = message.wish;
    this.ask(added);
  }

  /** Removes tabs that have sent nothing for GONE_MS. */
  sweep(): void {
    const oldest = Date.now() - GONE_MS;
    for (const [port, tab] of this.tabs) if (tab.heardAt < oldest) this.tabs.delete(port);
    this.ask();
  }

  private ask(added: readonly string[] = []): void {
    const wishes = [...this.tabs.values()].map((tab) => tab.wish);
    this.feeds.ask(union(wishes), added);
  }

  private received(message: FromFeed): void {
    for (const [port, tab] of this.tabs) if (concerns(message, tab.wish)) this.post(port, message);
  }
}

/** Returns a wish for all that any of them wants. */
export function union(wishes: readonly Wish[]): Wish {
  const jobs: Record<string, number> = {};
  const topics = new Set<Topic>();
  for (const wish of wishes) {
    for (const [id, position] of Object.entries(wish.jobs))
      jobs[id] = Math.min(position, jobs[id] ?? position);
    for (const topic of wish.topics) topics.add(topic);
  }
  return { jobs, topics: [...topics] };
}

function concerns(message: FromFeed, wish: Wish): boolean {
  if (message.type === "items") return message.items.job_id in wish.jobs;
  if (message.type === "line") return message.line.job_id in wish.jobs;
  if (message.type === "job") return wish.topics.includes("jobs") || message.job.id in wish.jobs;
  if (message.type === "deleted") return wish.topics.includes("jobs") || message.jobId in wish.jobs;
  if (message.type === "changed") return wish.topics.includes(message.topic);
  return true;
}
