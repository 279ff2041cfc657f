/** The parts of the form: first the fields that most runs set, then the others by the groups of the schema. */
import { isObject, type JsonObject } from "../../specs/json";
import { leavesOf, type Field } from "../../specs/schema";

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

/** The sections that come first. The others follow in the order of the schema. */
const FIRST = ["model", "data", "training", "loss", "optimizer"];

export function commonOf(root: Field): readonly Field[] {
  const leaves = leavesOf(root);
  return COMMON.flatMap((key) => leaves.filter((field) => field.key === key)).filter(
    (field) => field.isRequired || field.key !== "config.model.weights",
  );
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

/** Returns how many values a section has that are written in the spec. */
export function countGiven(section: Section, job: JsonObject): number {
  return section.fields.reduce((sum, field) => sum + countAt(field, job), 0);
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

function countAt(field: Field, job: JsonObject): number {
  let found: unknown = job;
  for (const key of field.path) found = isObject(found) ? found[key] : undefined;
  if (found === undefined) return 0;
  if (field.kind !== "group") return 1;
  return field.fields.reduce((sum, inner) => sum + countAt(inner, job), 0) || 1;
}
