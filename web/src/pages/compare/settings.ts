/** What was set in the compared jobs, where it differs. */
import type { JobView } from "../../api/wire";
import { codeOf, gitOf } from "../../code/origin";
import type { PlotValue } from "../../plots/rows";
import { OF_CODE } from "../../runs/suggested";
import { shortKeys } from "../../text/keys";
import { specRows, type SpecRow } from "./diff";

/** What people vary comes first. */
const FIRST = ["trainer", "args", "config", "resources", "checkpoint", "labels"];
const LETTERS_OF_COMMIT = 12;

/** Returns the settings that differ, but for the name, with their values: those that most jobs lack come last. */
export function settingsOf(specs: readonly unknown[]): readonly SpecRow[] {
  const others = specRows(specs).filter(({ path }) => path !== "name" && !OF_CODE.test(path));
  const ordered = [...others, codeRow(specs)]
    .filter(({ isEqual }) => !isEqual)
    .map((row) => ({ row, place: placeOf(row) }));
  ordered.sort((a, b) => a.place - b.place || (a.row.path < b.row.path ? -1 : 1));
  return ordered.map(({ row }) => row);
}

/** Returns the values of a setting in all jobs, whether it differs or not. */
export function valuesOf(specs: readonly unknown[], path: string): readonly (string | null)[] {
  if (path === "code") return codeRow(specs).values;
  return specRows(specs).find((row) => row.path === path)?.values ?? specs.map(() => null);
}

/** Returns a value of a setting from its JSON. Lists are one value, as in the differences below the table. */
export function settingOf(text: string | null): PlotValue {
  if (text === null) return null;
  const value: unknown = JSON.parse(text);
  return value === null || typeof value === "number" || typeof value === "string" ? value : text;
}

/** Returns short names of settings, which no metric has. */
export function titlesOf(
  settings: readonly SpecRow[],
  metrics: readonly string[],
): ReadonlyMap<string, string> {
  const titles = shortKeys([...settings.map(({ path }) => path), ...metrics]);
  return new Map(settings.map(({ path }) => [path, titles.get(path) ?? path]));
}

function placeOf({ path, values }: SpecRow): number {
  const at = FIRST.indexOf(path.split(".")[0] ?? "");
  const lacking = values.filter((value) => value === null).length;
  return (at < 0 ? FIRST.length : at) + (lacking > values.length / 2 ? FIRST.length + 1 : 0);
}

function codeRow(specs: readonly unknown[]): SpecRow {
  const values = specs.map((spec) => codeText({ spec } as JobView));
  return { path: "code", values, isEqual: values.every((value) => value === values[0]) };
}

/** Returns the commit as JSON; where not all is committed, with the digest of the code that ran. */
function codeText(job: JobView): string | null {
  const [code, git] = [codeOf(job), gitOf(job)];
  if (code === null) return null;
  const ran = /sha256:([0-9a-f]{8})/.exec(code)?.[1] ?? code;
  const commit = git?.commit.slice(0, LETTERS_OF_COMMIT);
  return JSON.stringify(!git ? ran : git.isDirty ? `${commit} + ${ran}` : commit);
}
