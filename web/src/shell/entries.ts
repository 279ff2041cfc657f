/** What the palette finds: pages and settings, jobs, other things by their names, and what keys do. */
import { get } from "../api/client";
import type {
  JobsPage,
  JobSummary,
  ModelView,
  Page,
  ScheduleSummary,
  SweepSummary,
  UserView,
  WorkerView,
} from "../api/wire";
import { href, navigate } from "../router.svelte";
import { signOf, type Sign } from "../signs/jobsign";
import { PAGES, SECTIONS } from "../sitemap";
import { may } from "./rights";
import { OPEN_PALETTE, shortcuts } from "./shortcuts";

export interface Entry {
  readonly id: string;
  readonly name: string;
  readonly note: string;
  readonly sign?: Sign;
  readonly run: () => void;
}

const MOST_OF_A_LIST = 200;
const MOST_EXACT = 3;
const MOST_JOBS = 12;

/** Returns the pages that the account may see, the sections of the settings, and what keys do. */
export function fixedEntries(): readonly Entry[] {
  const pages = PAGES.filter(({ scope }) => scope === undefined || may(scope)).map(({ path, title }) =>
    page(title, href(path)),
  );
  const states = [
    page("Running jobs", href("jobs", { state: "running" })),
    page("Failed jobs", href("jobs", { state: "failed" })),
  ];
  const sections = Object.entries(SECTIONS).filter(([, { scope }]) => may(scope));
  const settings = sections.map(([name, { title }]) =>
    page(`Settings: ${title}`, href("settings", { section: name })),
  );
  const docs = { ...page("Docs", href("docs/")), run: () => location.assign(href("docs/")) };
  return [...pages, docs, ...states, ...settings, ...keyEntries()];
}

function page(name: string, to: string): Entry {
  return { id: `page ${to}`, name, note: "page", run: () => navigate(to) };
}

function keyEntries(): readonly Entry[] {
  return shortcuts()
    .filter(({ keys }) => ![OPEN_PALETTE, "j", "k", "?"].includes(keys) && !keys.startsWith("g "))
    .map(({ keys, sentence, run }) => ({
      ...{ id: `key ${keys}`, name: sentence, note: keys },
      run: () => run(new KeyboardEvent("keydown")),
    }));
}

/** Reads what is found by its name alone. A list that cannot be read is left out: the pages say why. */
export async function readThings(): Promise<readonly Entry[]> {
  const lists = await Promise.all([
    things<SweepSummary>("sweeps", "sweep", ({ id, name }) => [name, href(`sweeps/${id}`)]),
    things<ScheduleSummary>("schedules", "schedule", ({ name }) => [name, href("schedules")]),
    things<ModelView>("models", "model", ({ owner, name }) => [`${owner}/${name}`, href("models")]),
    may("cluster:read")
      ? things<WorkerView>("workers", "worker", ({ id, name }) => [name, href(`workers/${id}`)])
      : [],
    may("users")
      ? things<UserView>("users", "user", ({ name }) => [name, href("jobs", { owner: name })])
      : [],
  ]);
  return lists.flat();
}

async function things<T>(
  path: string,
  note: string,
  of: (thing: T) => readonly [name: string, to: string],
): Promise<readonly Entry[]> {
  const page = await get<Page<T>>(`v1/${path}`, { limit: MOST_OF_A_LIST }).catch(() => null);
  return (page?.data ?? []).map((thing, at) => {
    const [name, to] = of(thing);
    return { id: `${note} ${at}`, name, note, run: () => navigate(to) };
  });
}

/** Finds jobs: those of exactly this name, and those that the service finds by any of their texts. Throws ApiError. */
export async function findJobs(text: string, signal: AbortSignal): Promise<readonly Entry[]> {
  const [exact, found] = await Promise.all([
    get<JobsPage>("v1/jobs", { name: text, limit: MOST_EXACT }, signal),
    get<JobsPage>("v1/jobs", { q: text, limit: MOST_JOBS }, signal),
  ]);
  const jobs = new Map([...exact.data, ...found.data].map((job) => [job.id, job]));
  return [...jobs.values()].map(jobEntry);
}

function jobEntry(job: JobSummary): Entry {
  const { id, name, owner } = job;
  return { id, name, note: owner, sign: signOf(job), run: () => navigate(href(`jobs/${id}`)) };
}

/** Returns what has the text in its name, best first, and then the jobs that have it elsewhere. */
export function ranked(text: string, jobs: readonly Entry[], others: readonly Entry[]): readonly Entry[] {
  const wanted = text.trim().toLowerCase();
  const named = [...jobs, ...others].map((entry) => ({ entry, rank: rankOf(entry, wanted) }));
  const found = named.filter(({ entry, rank }) => rank < ELSEWHERE || jobs.includes(entry));
  return found.sort((one, other) => one.rank - other.rank).map(({ entry }) => entry);
}

const ELSEWHERE = 4;

function rankOf({ id, name }: Entry, wanted: string): number {
  const text = name.toLowerCase();
  if (text === wanted || id === wanted) return 0;
  if (text.startsWith(wanted)) return 1;
  const at = text.indexOf(wanted);
  if (at < 0) return ELSEWHERE;
  return /[^\p{L}\p{N}]/u.test(text[at - 1] ?? "") ? 2 : 3;
}
