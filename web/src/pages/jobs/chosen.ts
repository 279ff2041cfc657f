/** Whose curves are drawn beside the list, as the address has it: the first of the list, or those that were chosen. */
import type { JobSummary } from "../../api/wire";
import type { LineGroup } from "../../charts/line";
import { coloursOf, type Colour } from "../../charts/colours";
import { visible } from "../../code/visible";
import { groupOf } from "./filter";

export interface Choice {
  /** Ids in the order in which they were chosen; null: the first of the list. */
  readonly ids: readonly string[] | null;
  /** How many of the list. */
  readonly most: number;
}

/** What rows do with the charts beside them. */
export interface Beside {
  /** Of the jobs and groups whose curves are drawn. */
  readonly colours: ReadonlyMap<string, Colour>;
  /** The one that stands out. */
  readonly marked: string | null;
  readonly toggle: (id: string) => void;
  readonly mark: (id: string | null) => void;
}

/** As many as are drawn until somebody chooses. */
export const FIRST = 20;
/** As many as charts draw at once. */
export const MOST = 200;

const ID = /^[0-9a-f]{32}$/;
const PREFIX = "job_";

/** Reads `runs` of an address: without it the first ones, `all` for as many as there may be, or ids without their prefix. */
export function choiceOf(query: URLSearchParams): Choice {
  const text = query.get("runs");
  if (text === null || text === "all") return { ids: null, most: text === null ? FIRST : MOST };
  const ids = text.split(".").map((part) => (ID.test(part) ? PREFIX + part : part));
  return { ids: [...new Set(ids)].filter((id) => id.startsWith(PREFIX)).slice(0, MOST), most: MOST };
}

/** Returns what an address has of these ids. They are short, so that no proxy finds it too long. */
export function choiceText(ids: readonly string[]): string {
  return ids.map((id) => id.replace(PREFIX, "")).join(".") || "none";
}

/** Returns the ids whose curves are read, in the order of the list. Chosen ones that are not listed follow. */
export function idsOf(choice: Choice, rows: readonly Pick<JobSummary, "id">[]): readonly string[] {
  if (choice.ids === null) return rows.slice(0, choice.most).map(({ id }) => id);
  const places = new Map(rows.map(({ id }, at) => [id, at]));
  return [...choice.ids].sort((a, b) => (places.get(a) ?? Infinity) - (places.get(b) ?? Infinity) || 0);
}

/** Returns what to change in the address so that a job's curves are drawn, or not any more. `hide`: those that are not. */
export function toggledRun(
  id: string,
  choice: Choice,
  ids: readonly string[],
  hide: readonly string[],
): { readonly runs?: string; readonly hide?: readonly string[] } {
  if (hide.includes(id)) return { hide: hide.filter((other) => other !== id) };
  if (!ids.includes(id)) return { runs: choiceText([...ids, id].slice(-MOST)) };
  if (choice.ids === null) return { hide: [...hide, id] };
  return { runs: choiceText(ids.filter((other) => other !== id)) };
}

/** Returns the groups of the list as lines of the charts, in the order of their first jobs. */
export function groupsOf(jobs: readonly JobSummary[], by: string): readonly LineGroup[] {
  const members = new Map<string, JobSummary[]>();
  for (const job of jobs) {
    const id = groupIdOf(valueOf(job, by));
    members.set(id, [...(members.get(id) ?? []), job]);
  }
  const colours = coloursOf([...members.keys()]);
  return [...members].map(([id, found]) => ({
    id,
    name: nameOf(found[0], by),
    colour: colours.get(id) ?? { slot: 1, dash: [] },
    jobs: found.map((job) => job.id),
  }));
}

/** Returns the id of a group by its value; `0.00001` and `1e-05` are one number. */
export function groupIdOf(value: string | null): string {
  if (value === null) return "group:";
  const number = value.trim() === "" ? NaN : Number(value);
  return `group:=${encodeURIComponent(Number.isNaN(number) ? value : String(number))}`;
}

/** Returns the columns that the list must have so that its jobs can be grouped. */
export function columnsFor(by: string): readonly string[] {
  return by === "" || by === "sweep" || by.startsWith("label:") ? [] : [groupOf(by)];
}

function valueOf(job: JobSummary, by: string): string | null {
  if (by === "sweep") return job.sweep?.id ?? null;
  if (by.startsWith("label:")) return own(job.labels, by.slice("label:".length)) ?? null;
  const value = own(job.columns ?? {}, by) ?? null;
  return value === null || typeof value === "string" ? value : JSON.stringify(value);
}

function nameOf(job: JobSummary | undefined, by: string): string {
  const value = job ? valueOf(job, by) : null;
  const name = by === "sweep" ? (job?.sweep?.name ?? null) : value;
  const title = by.split(/[.:]/).at(-1) ?? by;
  return name === null ? `without ${title}` : by === "sweep" ? visible(name) : `${title} ${visible(name)}`;
}

/** A key may be `constructor`, that no object lacks. */
function own<T>(values: Readonly<Record<string, T>>, key: string): T | undefined {
  return Object.hasOwn(values, key) ? values[key] : undefined;
}
