/** The parts of the form: first the fields that most runs set, then the others by the groups of the schema. */
import { isObject } from "../../specs/json";
import { leavesOf, type Field } from "../../specs/schema";
import type { Held } from "./errors";

export interface Section {
  readonly name: string;
  readonly fields: readonly Field[];
}

/** Weights are one of them for a recipe that cannot do without. */
const COMMON = [
  "name",
  "config.model.weights",
  "config.data.source",
  "config.code",
  "config.entrypoint",
  "config.args",
  "config.model.name",
  "config.model.method",
  "config.training.epochs",
  "config.training.per_device_batch_size",
  "config.optimizer.lr",
  "resources.devices_per_node",
  "init_from",
];

/** The methods that have a key of a sweep, where not all have it. */
const ONLY_OF: Readonly<Record<string, readonly string[]>> = {
  trials: ["random", "tpe", "asha", "array"],
  halving: ["asha"],
  points: ["list"],
  seed: ["random", "tpe", "asha"],
};

/** The sections that come first. The others follow in the order of the schema. */
const FIRST = ["model", "data", "training", "loss", "optimizer"];

export function commonOf(root: Field): readonly Field[] {
  const leaves = leavesOf(root);
  return COMMON.flatMap((key) => leaves.filter((field) => field.key === key)).filter(
    (field) => field.isRequired || field.key !== "config.model.weights",
  );
}

/** Returns the fields, of a trainer or of a sweep, whose keys or helps have all these words: first those of that name. */
export function matching(root: Field, words: string): readonly Field[] {
  const wanted = words.toLowerCase().split(/\s+/);
  const hasAll = (text: string): boolean => wanted.every((word) => text.includes(word));
  const found = leavesOf(root).filter(({ key, help }) => hasAll(`${key} ${help}`.toLowerCase()));
  const rankOf = ({ key, path }: Field): number => (path.at(-1) === words ? 0 : hasAll(key) ? 1 : 2);
  return found.toSorted((one, other) => rankOf(one) - rankOf(other));
}

/** Returns the folded sections. Each field is in one, or among the common ones. */
export function sectionsOf(root: Field): readonly Section[] {
  const common = commonOf(root);
  const config = root.fields.find((field) => field.key === "config")?.fields ?? [];
  const others = root.fields.filter((field) => field.key !== "config");
  const groups = [...config, ...others.filter(isApart)].filter(isApart).map((field) => ({
    name: field.path.at(-1) ?? "",
    fields: field.kind === "group" && !field.isNullable ? field.fields : [field],
  }));
  const plain = [
    { name: "config", fields: config.filter((field) => !isApart(field)) },
    { name: "job", fields: others.filter((field) => !isApart(field)) },
  ];
  return [...groups, ...plain]
    .map((section) => ({ ...section, fields: section.fields.filter((field) => !common.includes(field)) }))
    .filter((section) => section.fields.length > 0)
    .sort((one, other) => rank(one) - rank(other));
}

/** Returns the fields of a sweep that its method has, and those that most sweeps leave as they are. */
export function partsOfSweep(
  root: Field,
  method: string,
): { common: readonly Field[]; others: readonly Field[] } {
  const others = ["visibility", "labels", "max_failed", "seed"];
  const hidden = [
    "job",
    "parameters",
    ...Object.keys(ONLY_OF).filter((name) => !ONLY_OF[name]?.includes(method)),
  ];
  const shown = root.fields.filter((field) => !hidden.includes(field.path[0] ?? ""));
  const isOther = (field: Field): boolean => others.includes(field.path[0] ?? "");
  return { common: shown.filter((field) => !isOther(field)), others: shown.filter(isOther) };
}

/** Returns how many values a section has that are written in the spec. */
export function countGiven(section: Section, draft: Held): number {
  return section.fields.reduce((sum, field) => sum + countAt(field, draft), 0);
}

/** Says whether a field of the section, or one within, is among these. */
export function hasAny(section: Section, keys: ReadonlySet<string>): boolean {
  return section.fields.some(
    (field) => keys.has(field.key) || leavesOf(field).some((leaf) => keys.has(leaf.key)),
  );
}

function rank({ name }: Section): number {
  const place = FIRST.indexOf(name);
  return place < 0 ? FIRST.length : place;
}

function isApart(field: Field): boolean {
  return field.kind === "group" || field.kind === "map";
}

function countAt(field: Field, draft: Held): number {
  if (field.kind !== "group")
    return draft.given(field) === undefined && draft.varied(field) === undefined ? 0 : 1;
  const inner = field.fields.reduce((sum, each) => sum + countAt(each, draft), 0);
  return inner || (isObject(draft.given(field)) && field.isNullable ? 1 : 0);
}
