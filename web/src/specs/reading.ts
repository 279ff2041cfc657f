/** Reads a job spec or a sweep that somebody types as YAML: one mapping, without what YAML has beyond JSON. */
import {
  constructFromEvents,
  EVENT_ID,
  parseEvents,
  SCALAR_STYLE,
  getScalarValue,
  YAMLException,
} from "js-yaml";
import type { Event } from "js-yaml";
import { isObject, type Json, type JsonObject, type Path } from "./json";

/** Where a key or an item of a list begins, and where the text of its value is, if that is on one line. */
export interface Place {
  /** From 1. */
  readonly line: number;
  readonly value: readonly [start: number, end: number] | null;
}

export interface Read {
  readonly document: JsonObject;
  /** By `keyOf` of their paths. */
  readonly places: ReadonlyMap<string, Place>;
}

/** The text is no document that the page takes. */
export class Fault extends Error {
  constructor(
    message: string,
    /** From 1. */
    readonly line: number,
  ) {
    super(message);
  }
}

export const MOST_BYTES = 65_536;
const MOST_DEPTH = 20;

/** Returns the key of a path in `places`: keys may have dots themselves. */
export function keyOf(path: Path): string {
  return JSON.stringify(path);
}

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
  if (size > MOST_BYTES) throw new Fault(`has ${size} bytes, and at most ${MOST_BYTES} are read here`, 1);
  try {
    const events = parseEvents(text, { maxDepth: MOST_DEPTH });
    const places = new Walk(text, events).places();
    const [document] = constructFromEvents(events, { source: text, maxAliases: 0 });
    if (!isObject(document)) throw new Fault("is no mapping of keys, such as trainer: script", 1);
    checkNumbers(document, [], places);
    return { document, places };
  } catch (error) {
    if (error instanceof Fault) throw error;
    if (error instanceof YAMLException) throw new Fault(error.reason, (error.mark?.line ?? 0) + 1);
    throw new Fault(`cannot be read: ${String(error)}`, 1); // the parser says that it may throw anything
  }
}

/** One walk over what the parser found, in the order of the text. */
class Walk {
  private readonly found = new Map<string, Place>();
  private next = 0;
  private readonly starts: number[] = [0];

  constructor(
    private readonly text: string,
    private readonly events: readonly Event[],
  ) {
    for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) this.starts.push(at + 1);
  }

  /** Throws Fault for what is refused. */
  places(): ReadonlyMap<string, Place> {
    const documents = this.events.filter((event) => event.type === EVENT_ID.DOCUMENT);
    if (documents.length > 1) throw new Fault("has several documents: write one job spec", 1);
    if (documents.length === 0) throw new Fault("is empty: write at least trainer: NAME", 1);
    this.next = 1;
    this.value([]);
    return this.found;
  }

  private value(path: Path): void {
    const event = this.events[this.next];
    if (event === undefined || event.type === EVENT_ID.POP || event.type === EVENT_ID.DOCUMENT) return;
    this.next++;
    if (event.type === EVENT_ID.ALIAS)
      throw new Fault("has an alias (*): write the value itself", this.lineAt(event.anchorStart));
    this.refuse(event.anchorStart, "has an anchor (&): write values where they belong");
    this.refuse(event.tagStart, "has a tag (!): values have the types that they look like");
    if (event.type === EVENT_ID.SEQUENCE) this.items(path);
    if (event.type === EVENT_ID.MAPPING) this.pairs(path);
  }

  private items(path: Path): void {
    for (let place = 0; this.isOpen(); place++) {
      const inner = [...path, String(place)];
      this.note(inner, this.startOf(this.events[this.next]));
      this.value(inner);
    }
    this.next++;
  }

  private pairs(path: Path): void {
    const seen = new Set<string>();
    while (this.isOpen()) {
      const start = this.startOf(this.events[this.next]);
      const key = this.key(start);
      if (seen.has(key)) throw new Fault(`has the key ${key} twice`, this.lineAt(start));
      seen.add(key);
      const inner = [...path, key];
      this.note(inner, start);
      this.value(inner);
    }
    this.next++;
  }

  private key(start: number): string {
    const event = this.events[this.next];
    if (event?.type !== EVENT_ID.SCALAR) throw new Fault("has a key that is no text", this.lineAt(start));
    this.value([]);
    const key = getScalarValue(this.text, event);
    if (key === "__proto__")
      throw new Fault("has the key __proto__, which no job spec has", this.lineAt(start));
    if (key === "<<") throw new Fault("has a merge (<<): write the keys themselves", this.lineAt(start));
    return key;
  }

  /** Notes where a key is; its value is the next event but one, where that is a text on one line. */
  private note(path: Path, start: number): void {
    const event = this.events[this.next];
    const isScalar = event?.type === EVENT_ID.SCALAR;
    const isPlain = isScalar && event.style === SCALAR_STYLE.PLAIN && event.valueEnd > event.valueStart;
    const isOnOne = isPlain && !this.text.slice(event.valueStart, event.valueEnd).includes("\n");
    this.found.set(keyOf(path), {
      line: this.lineAt(start),
      value: isOnOne ? [event.valueStart, event.valueEnd] : null,
    });
  }

  private isOpen(): boolean {
    const event = this.events[this.next];
    return event !== undefined && event.type !== EVENT_ID.POP;
  }

  private startOf(event: Event | undefined): number {
    if (event === undefined) return 0;
    if (event.type === EVENT_ID.SCALAR) return Math.max(0, event.valueStart);
    if (event.type === EVENT_ID.ALIAS) return event.anchorStart;
    return "start" in event ? event.start : 0;
  }

  private refuse(start: number, message: string): void {
    if (start >= 0) throw new Fault(message, this.lineAt(start));
  }

  private lineAt(position: number): number {
    let [low, high] = [0, this.starts.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if ((this.starts[middle] ?? 0) <= position) low = middle;
      else high = middle;
    }
    return low + 1;
  }
}

/** JSON has no infinities, and a script's numbers are exact up to 2^53 only. Throws Fault. */
function checkNumbers(value: Json, path: Path, places: Read["places"]): void {
  if (typeof value === "number" && (!Number.isFinite(value) || isInexact(value)))
    throw new Fault(`has the number ${value}, which is not kept exactly`, places.get(keyOf(path))?.line ?? 1);
  if (typeof value !== "object" || value === null) return;
  for (const [key, inner] of Object.entries(value)) checkNumbers(inner as Json, [...path, key], places);
}

function isInexact(value: number): boolean {
  return Number.isInteger(value) && !Number.isSafeInteger(value) && Math.abs(value) < 1e21;
}
