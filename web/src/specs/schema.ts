/** The fields of a job spec, from its JSON schema: it has plain types, $ref, enum, const and anyOf. */
import { isObject, type Json, type Path } from "./json";

export interface Schema {
  readonly $ref?: string;
  readonly $defs?: Readonly<Record<string, Schema>>;
  readonly oneOf?: readonly Schema[];
  readonly anyOf?: readonly Schema[];
  readonly type?: string;
  readonly const?: Json;
  readonly enum?: readonly Json[];
  readonly default?: Json;
  readonly description?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly patternProperties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly items?: Schema;
  readonly pattern?: string;
  readonly examples?: readonly Json[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly exclusiveMaximum?: number;
}

/** What one submits is described by. */
export interface Schemas {
  /** Of a job spec, for each trainer. */
  readonly job: Schema;
  /** Of a sweep, with its job as any object. */
  readonly sweep: Schema;
}

export type Kind =
  | "choice" // one of few values
  | "number" // a number, and maybe words beside it
  | "text"
  | "lines" // a list of texts
  | "map" // names with values
  | "free" // anything else, as YAML
  | "group"; // an object with fields

export interface Field {
  readonly path: Path;
  /** The path as errors name it; of what a sweep has around its job, with `sweep.` before. */
  readonly key: string;
  readonly isOfSweep: boolean;
  readonly kind: Kind;
  /** What it is if it is left out. Undefined: it must be given, or is made of the defaults of its fields. */
  readonly fallback: Json | undefined;
  readonly isRequired: boolean;
  readonly help: string;
  readonly unit: string;
  /** Of a `choice`; of a `number` or of `lines`, the words that may stand in their place. */
  readonly choices: readonly Json[];
  /** Of `lines`, what each may be. */
  readonly each: readonly Json[];
  /** What a single value must be like. */
  readonly limits: Schema;
  /** Whether null is a value. A group of which this holds is there only if it is asked for. */
  readonly isNullable: boolean;
  /** Of a group. */
  readonly fields: readonly Field[];
}

/** Returns the names of the trainers. */
export function trainersOf(whole: Schema): string[] {
  return (whole.oneOf ?? []).flatMap((each) => {
    const name = resolve(whole, each).properties?.trainer?.const;
    return typeof name === "string" ? [name] : [];
  });
}

/** Returns the fields of a spec of a trainer, as a group; null if there is no such trainer. */
export function fieldsOf(whole: Schema, trainer: Json | undefined): Field | null {
  const spec = (whole.oneOf ?? [])
    .map((each) => resolve(whole, each))
    .find((each) => each.properties?.trainer?.const === trainer);
  return spec === undefined ? null : fieldOf(whole, spec, [], true);
}

/** Returns the fields of what a sweep has around its job, as a group. */
export function sweepFieldsOf(whole: Schema): Field {
  return ofSweep(fieldOf(whole, whole, [], true));
}

function ofSweep(field: Field): Field {
  return { ...field, key: `sweep.${field.key}`, isOfSweep: true, fields: field.fields.map(ofSweep) };
}

/** Returns all fields that are no groups. */
export function leavesOf(field: Field): readonly Field[] {
  return field.kind === "group" ? field.fields.flatMap(leavesOf) : [field];
}

/** Returns the field at a place, or the one whose value has it. */
export function fieldAt(root: Field, path: Path): Field {
  const inner = root.fields.find((field) => field.path.at(-1) === path[0]);
  return inner === undefined || path.length === 0 ? root : fieldAt(inner, path.slice(1));
}

function fieldOf(whole: Schema, written: Schema, path: Path, isRequired: boolean): Field {
  const found = resolve(whole, written);
  const options = alternatives(whole, found);
  const rest = options.filter((each) => each.type !== "null");
  const list = rest.find((each) => each.type === "array");
  const only = rest.length === 1 && rest[0] ? rest[0] : null;
  const kind = kindOf(only, rest);
  const required = only?.required ?? [];
  const fields = Object.entries(kind === "group" ? (only?.properties ?? {}) : {})
    .filter(([, inner]) => inner.const === undefined)
    .map(([name, inner]) => fieldOf(whole, inner, [...path, name], required.includes(name)));
  return {
    path,
    key: path.join("."),
    isOfSweep: false,
    kind,
    fallback: found.default,
    isRequired,
    help: found.description ?? written.description ?? "",
    unit: unitOf(path.at(-1) ?? "", only),
    choices: rest.flatMap(valuesOf),
    each: kind === "lines" ? (list?.items?.enum ?? []) : [],
    limits: only ?? rest.find((each) => each.type === "integer" || each.type === "number") ?? {},
    isNullable: options.length > rest.length,
    fields,
  };
}

function resolve(whole: Schema, written: Schema): Schema {
  if (written.$ref === undefined) return written;
  const found = whole.$defs?.[written.$ref.replace("#/$defs/", "")] ?? {};
  // What stands beside the reference is of this place.
  return { ...found, ...written };
}

function alternatives(whole: Schema, schema: Schema): readonly Schema[] {
  if (schema.anyOf === undefined) return [schema];
  return schema.anyOf.flatMap((each) => alternatives(whole, resolve(whole, each)));
}

function valuesOf(schema: Schema): readonly Json[] {
  if (schema.const !== undefined) return [schema.const];
  return schema.enum ?? (schema.type === "boolean" ? [true, false] : []);
}

function kindOf(only: Schema | null, options: readonly Schema[]): Kind {
  if (options.every((each) => valuesOf(each).length > 0)) return "choice";
  const isNumeric = (each: Schema): boolean => each.type === "integer" || each.type === "number";
  if (options.every((each) => isNumeric(each) || valuesOf(each).length > 0)) return "number";
  const lists = options.filter((each) => valuesOf(each).length === 0);
  if (lists.every((each) => each.type === "array" && isText(each.items))) return "lines";
  if (only === null) return "free";
  if (only.type === "string") return "text";
  if (only.type !== "object") return "free";
  if (only.properties !== undefined) return "group";
  const values = [only.additionalProperties, ...Object.values(only.patternProperties ?? {})].find(isObject);
  return isText(values as Schema | undefined) ? "map" : "free";
}

/** Says whether a value is a text, or a text and something else, such as a secret. */
function isText(schema: Schema | undefined): boolean {
  if (schema?.anyOf) return schema.anyOf.some((each) => each.type === "string");
  return schema?.type === "string";
}

const UNITS: readonly (readonly [RegExp, string])[] = [
  [/_gb$/, "GiB"],
  [/_mb$/, "MiB"],
  [/_epochs$/, "epochs"],
  [/_steps$/, "steps"],
];

function unitOf(name: string, schema: Schema | null): string {
  if (schema?.examples?.includes("15m")) return "s, m, h, d";
  return UNITS.find(([pattern]) => pattern.test(name))?.[1] ?? "";
}
