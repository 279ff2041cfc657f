/** JSON values and places in them. */
export type Json = string | number | boolean | null | readonly Json[] | JsonObject;
export interface JsonObject {
  readonly [key: string]: Json;
}
/** Keys of objects and places in lists, from the outside. */
export type Path = readonly string[];

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Returns what is at a place; undefined where there is none. */
export function at(value: Json | undefined, path: Path): Json | undefined {
  let found = value;
  for (const key of path) {
    if (Array.isArray(found)) found = (found as readonly Json[])[Number(key)];
    else found = isObject(found) && Object.hasOwn(found, key) ? found[key] : undefined;
  }
  return found;
}

/** Returns the object with the value at a place, in objects that are made for it. Undefined removes its key. */
export function put(object: JsonObject, path: Path, value: Json | undefined): JsonObject {
  const [key, ...rest] = path;
  if (key === undefined) return object;
  if (rest.length > 0) {
    const inner = Object.hasOwn(object, key) ? object[key] : undefined;
    if (value === undefined && !isObject(inner)) return object;
    return { ...object, [key]: put(isObject(inner) ? inner : {}, rest, value) };
  }
  if (value !== undefined) return { ...object, [key]: value };
  return Object.fromEntries(Object.entries(object).filter(([other]) => other !== key));
}

/** Says whether two values are equal, whatever the order of their keys. */
export function equal(one: Json | undefined, other: Json | undefined): boolean {
  if (Array.isArray(one) && Array.isArray(other))
    return (
      one.length === other.length && one.every((item, place) => equal(item as Json, other[place] as Json))
    );
  if (!isObject(one) || !isObject(other)) return one === other;
  const keys = Object.keys(one);
  return (
    keys.length === Object.keys(other).length &&
    keys.every((key) => Object.hasOwn(other, key) && equal(one[key], other[key]))
  );
}
