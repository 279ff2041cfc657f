/** Reads a job spec or a sweep that somebody types as YAML: one mapping, without what YAML has beyond JSON. */
import { constructFromEvents, parseEvents, YAMLException } from "js-yaml";
import { Fault } from "./fault";
import { isObject, type Json, type JsonObject, type Path } from "./json";
import { keyOf, placesOf, type Places } from "./places";

export interface Read {
  readonly document: JsonObject;
  readonly places: Places;
}

export const MOST_BYTES = 65_536;
const MOST_DEPTH = 20;

/** Returns the line of a place, or of the innermost one around it that has a line. */
export function lineOf(read: Read, path: Path): number {
  for (let length = path.length; length > 0; length--) {
    const place = read.places.get(keyOf(path.slice(0, length)));
    if (place) return place.line;
  }
  return 1;
}

/** Reads the text. Throws Fault. */
export function read(text: string): Read {
  const size = new TextEncoder().encode(text).length;
  if (size > MOST_BYTES) throw new Fault(`has ${size} bytes; the limit is ${MOST_BYTES}`, 1);
  try {
    const events = parseEvents(text, { maxDepth: MOST_DEPTH });
    const places = placesOf(text, events);
    const [document] = constructFromEvents(events, { source: text, maxAliases: 0 });
    if (!isObject(document)) throw new Fault("is not a mapping, such as trainer: script", 1);
    checkNumbers(document, [], places);
    return { document, places };
  } catch (error) {
    if (error instanceof Fault) throw error;
    if (error instanceof YAMLException) throw new Fault(error.reason, (error.mark?.line ?? 0) + 1);
    throw new Fault(`cannot be read: ${String(error)}`, 1); // the parser says that it may throw anything
  }
}

/** JSON has no infinities, and a script's numbers are exact up to 2^53 only. Throws Fault. */
function checkNumbers(value: Json, path: Path, places: Places): void {
  if (typeof value === "number" && (!Number.isFinite(value) || isInexact(value)))
    throw new Fault(`has the number ${value}, which would lose digits`, places.get(keyOf(path))?.line ?? 1);
  if (typeof value !== "object" || value === null) return;
  for (const [key, inner] of Object.entries(value)) checkNumbers(inner as Json, [...path, key], places);
}

function isInexact(value: number): boolean {
  return Number.isInteger(value) && !Number.isSafeInteger(value) && Math.abs(value) < 1e21;
}
