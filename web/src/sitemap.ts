/** The pages: where each is, what it is called, which keys open it, where it is offered, and who may see it. */
import type { MeView } from "./api/wire";

type Scope = MeView["scopes"][number];

interface Entry {
  /** The first part of its address. */
  readonly path: string;
  readonly title: string;
  /** Where the head of each page offers it. */
  readonly within: "head" | "menu" | "button";
  readonly keys?: string;
  /** What the keys do. */
  readonly does?: string;
  readonly scope?: Scope;
}

export const SITEMAP = {
  now: { path: "", title: "Now", within: "head", keys: "g n", does: "Go to Now" },
  jobs: { path: "jobs", title: "Jobs", within: "head", keys: "g j", does: "Go to Jobs" },
  sweeps: { path: "sweeps", title: "Sweeps", within: "head", keys: "g s", does: "Go to Sweeps" },
  schedules: { path: "schedules", title: "Schedules", within: "head" },
  compare: { path: "compare", title: "Compare", within: "head", keys: "g c", does: "Go to Compare" },
  models: { path: "models", title: "Models", within: "head", keys: "g m", does: "Go to Models" },
  workers: { path: "workers", title: "Workers", within: "head", keys: "g w", does: "Go to Workers" },
  submit: {
    ...{ path: "submit", title: "Submit", within: "button", scope: "jobs:write" },
    ...{ keys: "g u", does: "Go to Submit" },
  },
  settings: { path: "settings", title: "Settings", within: "menu" },
} as const satisfies Record<string, Entry>;

type ListName = keyof typeof SITEMAP;

/** The pages of one thing of a list: its id is the second part of the address. */
export const PAGES_OF_ONE = { jobs: "job", sweeps: "sweep", workers: "worker" } as const satisfies Partial<
  Record<ListName, string>
>;

export type PageName = ListName | (typeof PAGES_OF_ONE)[keyof typeof PAGES_OF_ONE];

/** All pages but those of one thing. */
export const PAGES: readonly (Entry & { readonly name: PageName })[] = Object.entries(SITEMAP).map(
  ([name, entry]) => ({ name: name as ListName, ...entry }),
);

/** The sections of the settings, by `?section=`. */
export const SECTIONS = {
  tokens: { title: "Tokens", scope: "tokens" },
  sessions: { title: "Sessions", scope: "tokens" },
  usage: { title: "Your usage", scope: "account" },
  notifications: { title: "Notifications", scope: "jobs:read" },
  secrets: { title: "Secrets", scope: "secrets" },
  users: { title: "Users", scope: "users" },
  quotas: { title: "Quotas", scope: "users" },
  audit: { title: "Audit", scope: "audit" },
} as const satisfies Record<string, { readonly title: string; readonly scope: Scope }>;

export type SectionName = keyof typeof SECTIONS;
