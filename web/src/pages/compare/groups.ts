/** Compared jobs in groups: by their sweep, a label, or a setting. */
import type { JobView } from "../../api/wire";
import { colourOf } from "../../charts/colours";
import type { LineGroup } from "../../charts/line";
import { visible } from "../../code/visible";
import type { Compared } from "./compared";
import type { SpecRow } from "./diff";
import { settingsOf, titlesOf, valuesOf as settingValuesOf } from "./settings";

/** Jobs of which more differs are no repetitions of one another. */
const MOST_BUT = 12;
/** Begins a grouping by all settings but the one that it names. */
const BUT = "but:";

export interface Grouping {
  /** As the address names it: `sweep`, `label:KEY`, a path of the spec such as `config.lr`, or `but:PATH`. */
  readonly id: string;
  readonly title: string;
}

/** Returns by what the jobs can be grouped: what differs among them, and is the same in at least two. */
export function groupingsOf(jobs: readonly JobView[]): readonly Grouping[] {
  const settings = settingsOf(jobs.map((job) => job.spec));
  const titles = titlesOf(settings, []);
  const sweep = { id: "sweep", title: "sweep", values: valuesOf(jobs, "sweep") };
  const rows = settings.map(({ path, values }) => {
    const label = path.startsWith("labels.") ? path.slice("labels.".length) : null;
    return label === null
      ? { id: path, title: titles.get(path) ?? path, values }
      : { id: `label:${label}`, title: `label ${label}`, values };
  });
  const others = settings.slice(0, MOST_BUT).map(({ path }) => ({
    ...{ id: `${BUT}${path}`, title: `all but ${titles.get(path) ?? path}` },
    values: othersOf(settings, path, jobs.length),
  }));
  return [sweep, ...rows, ...(settings.length > 2 ? others : [])].filter(({ values }) => {
    const different = new Set(values).size;
    return different > 1 && different < jobs.length;
  });
}

/** Returns the groups in the order of their first jobs. Jobs without a value are one group. */
export function groupsOf(jobs: readonly Compared[], by: string): readonly LineGroup[] {
  const values = valuesOf(
    jobs.map((job) => job.view),
    by,
  );
  const members = new Map<string, string[]>();
  for (const [place, { id }] of jobs.entries()) {
    const name = nameOf(values[place] ?? null);
    members.set(name, [...(members.get(name) ?? []), id]);
  }
  const ids = [...members.keys()].map(idOf);
  const title = by.split(/[.:]/).at(-1) ?? by;
  return [...members].map(([name, found]) => ({
    id: idOf(name),
    name: by.startsWith(BUT) ? name : `${title} ${name}`,
    colour: colourOf(idOf(name), ids),
    jobs: found,
  }));
}

/** The address holds lists with commas. */
function idOf(name: string): string {
  return `group:${encodeURIComponent(name)}`;
}

/** Returns a value of each job as JSON, or null. */
function valuesOf(jobs: readonly JobView[], by: string): readonly (string | null)[] {
  if (by === "sweep") return jobs.map((job) => (job.sweep ? JSON.stringify(job.sweep.name) : null));
  const specs = jobs.map((job) => job.spec);
  if (by.startsWith(BUT)) return othersOf(settingsOf(specs), by.slice(BUT.length), jobs.length);
  return settingValuesOf(specs, by.startsWith("label:") ? `labels.${by.slice("label:".length)}` : by);
}

/** Returns all settings but one as one value of each job: jobs that differ in a seed alone have the same. */
function othersOf(settings: readonly SpecRow[], but: string, jobs: number): readonly string[] {
  const left = settings.filter(({ path }) => path !== but);
  const titles = titlesOf(left, []);
  return Array.from({ length: jobs }, (_, place) =>
    left.map(({ path, values }) => `${titles.get(path) ?? path} ${nameOf(values[place] ?? null)}`).join(", "),
  );
}

function nameOf(value: string | null): string {
  return value === null || value === "null" ? "none" : visible(value.replace(/^"(.*)"$/, "$1"));
}
