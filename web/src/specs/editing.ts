/** Changes the text of a document so that it says another one, and leaves all else as it was typed. */
import { yaml, flow } from "../text/yaml";
import { isSweep, jobOf } from "./document";
import { Fault } from "./fault";
import { at, equal, isObject, type Json, type JsonObject, type Path } from "./json";
import { keyOf, type Place } from "./places";
import { read, type Read } from "./reading";

const MOST_EDITS = 200;
/** Comments and empty lines before the first key. */
const HEAD = /^(?:#.*\n|[^\S\n]*\n)*/;

interface Edit {
  readonly from: number;
  readonly to: number;
  readonly text: string;
}

/** Returns the text, changed where the document that it is differs from the next one; written anew where that cannot be done. */
export function edited(text: string, next: JsonObject): string {
  try {
    const made = stepwise(withLevels(text, next), next);
    if (made !== null) return made;
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
  }
  return `${headOf(text)}${yaml(next)}\n`;
}

/** Edits one value after the other: what each changes is read again. Null if one cannot be edited. */
function stepwise(text: string, next: JsonObject): string | null {
  let made = text;
  for (let edits = 0; edits < MOST_EDITS; edits++) {
    const found = read(made);
    const path = difference(found.document, next, []);
    if (path === null) return made;
    const edit = editOf(made, found, path, at(next, path));
    if (edit === null) return null;
    made = made.slice(0, edit.from) + edit.text + made.slice(edit.to);
  }
  return null;
}

/** Returns a place whose values differ: the innermost that is in an object that both have; null if there is none. */
function difference(before: JsonObject, after: JsonObject, path: Path): Path | null {
  for (const key of [...Object.keys(before), ...Object.keys(after)]) {
    const [one, other] = [at(before, [key]), at(after, [key])];
    if (equal(one, other)) continue;
    const inner = [...path, key];
    const isCommon =
      isObject(one) && isObject(other) && Object.keys(one).some((name) => Object.hasOwn(other, name));
    return isCommon ? difference(one, other, inner) : inner;
  }
  return null;
}

function editOf(text: string, found: Read, path: Path, value: Json | undefined): Edit | null {
  const outer = found.places.get(keyOf(path.slice(0, -1)));
  const place = found.places.get(keyOf(path));
  const key = path.at(-1) ?? "";
  if (outer === undefined) return null;
  if (place === undefined)
    return value === undefined ? null : added(text, outer, beforeJob(found, path), key, value);
  if (value === undefined) return removed(text, outer, siblings(found, path), place);
  const isBlock = typeof value === "object" && value !== null && Object.keys(value).length > 0;
  if (place.isInline && (outer.isInline || !isBlock || Array.isArray(value))) {
    const [from, to] = place.value;
    return { from, to, text: `${from === to ? " " : ""}${flow(value)}` };
  }
  const [from, to] = linesOf(text, place);
  return { from, to, text: entry(indentOf(text, place.start), key, value) };
}

/** Adds a key behind the last one of its object. */
function added(text: string, outer: Place, others: readonly Place[], key: string, value: Json): Edit | null {
  const last = others.at(-1);
  if (outer.isInline) {
    const from = last?.value[1] ?? outer.value[0] + 1;
    return { from, to: from, text: `${last ? ", " : ""}${flow({ [key]: value }).slice(1, -1)}` };
  }
  if (last === undefined) return null;
  const [, from] = linesOf(text, last);
  const isOpen = from > 0 && text[from - 1] !== "\n";
  return { from, to: from, text: (isOpen ? "\n" : "") + entry(indentOf(text, outer.value[0]), key, value) };
}

function removed(text: string, outer: Place, others: readonly Place[], place: Place): Edit | null {
  if (!outer.isInline) {
    const [from, to] = linesOf(text, place);
    return text.slice(from, place.start).trim() === "" ? { from, to, text: "" } : null;
  }
  const index = others.indexOf(place);
  const [before, after] = [others[index - 1], others[index + 1]];
  if (after) return { from: place.start, to: after.start, text: "" };
  return { from: before?.value[1] ?? place.start, to: place.value[1], text: "" };
}

/** Returns the places of the keys of an object, in the order of the text. */
function siblings(found: Read, path: Path): readonly Place[] {
  const outer = path.slice(0, -1);
  const object = at(found.document, outer);
  return Object.keys(isObject(object) ? object : {})
    .flatMap((key) => found.places.get(keyOf([...outer, key])) ?? [])
    .sort((one, other) => one.start - other.start);
}

/** Returns the same, of a sweep without its job, which stays last. */
function beforeJob(found: Read, path: Path): readonly Place[] {
  const all = siblings(found, path);
  const job = path.length === 1 && isSweep(found.document) ? found.places.get(keyOf(["job"])) : undefined;
  const before = job === undefined ? all : all.filter((place) => place.start < job.start);
  return before.length > 0 ? before : all;
}

/** Returns the lines of a key and its value, with the last one's end. */
function linesOf(text: string, place: Place): [number, number] {
  const from = text.lastIndexOf("\n", place.start - 1) + 1;
  const [, to] = place.value;
  if (to > 0 && text[to - 1] === "\n") return [from, to]; // a block of lines
  const end = text.indexOf("\n", to);
  return [from, end < 0 ? text.length : end + 1];
}

function indentOf(text: string, start: number): string {
  return " ".repeat(start - text.lastIndexOf("\n", start - 1) - 1);
}

function entry(indent: string, key: string, value: Json): string {
  return indented(`${yaml({ [key]: value })}\n`, indent);
}

/** Moves the text of a job below the key `job` where it becomes a sweep, and back. */
function withLevels(text: string, next: JsonObject): string {
  const found = read(text);
  if (isSweep(found.document) === isSweep(next)) return text;
  if (isSweep(next)) {
    const { job, ...others } = next;
    const head = headOf(text);
    const body = isObject(job) ? indented(text.slice(head.length), "  ") : "";
    return `${head}${yaml(others)}\njob:\n${body}`;
  }
  const place = found.places.get(keyOf(["job"]));
  if (place === undefined || place.isInline || Object.keys(jobOf(found.document)).length === 0) return text;
  const indent = indentOf(text, place.value[0]);
  const [, to] = linesOf(text, place);
  const lines = text.slice(text.indexOf("\n", place.start) + 1, to);
  return headOf(text) + lines.replaceAll(new RegExp(`^${indent}`, "gm"), "");
}

function headOf(text: string): string {
  return HEAD.exec(text)?.[0] ?? "";
}

function indented(lines: string, indent: string): string {
  return lines.replaceAll(/^(?=.)/gm, indent);
}
