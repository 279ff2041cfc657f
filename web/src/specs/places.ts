/** Finds where each key of a text in YAML is, and refuses what YAML has beyond JSON. */
import { COLLECTION_STYLE, EVENT_ID, getScalarValue, SCALAR_STYLE } from "js-yaml";
import type { Event, ScalarEvent } from "js-yaml";
import { Fault } from "./fault";
import type { Path } from "./json";

/** Where a key or an item of a list is. */
export interface Place {
  /** From 1. */
  readonly line: number;
  readonly start: number;
  /** Where its value begins and ends; empty where nothing is written, which is null. */
  readonly value: readonly [start: number, end: number];
  /** Whether its value can be replaced where it is: it is in brackets, or a text or number of no block of lines. */
  readonly isInline: boolean;
}

/** By `keyOf` of their paths. The path without a key is the whole document. */
export type Places = ReadonlyMap<string, Place>;

/** YAML 1.1, which the command line reads, takes it for another number. */
const OCTAL = /^[-+]?0[0-9]+$/;

/** Returns the key of a path in `places`: keys may have dots themselves. */
export function keyOf(path: Path): string {
  return JSON.stringify(path);
}

/** Returns the places of the one document that the events are of. Throws Fault for what is refused. */
export function placesOf(text: string, events: readonly Event[]): Places {
  return new Walk(text, events).places();
}

/** One walk over what the parser found, in the order of the text. */
class Walk {
  private readonly found = new Map<string, Place>();
  private readonly starts: number[] = [0];
  private next = 0;
  /** How far the text has been walked. */
  private end = 0;

  constructor(
    private readonly text: string,
    private readonly events: readonly Event[],
  ) {
    for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) this.starts.push(at + 1);
  }

  places(): Places {
    if (this.events.length === 0) throw new Fault("is empty: write at least trainer: NAME", 1);
    this.next = 1;
    this.value([], 0);
    const second = this.events.findIndex((event, place) => place > 0 && event.type === EVENT_ID.DOCUMENT);
    if (second > 0) throw new Fault("begins a second document: write one job spec", this.lineOfSecond());
    return this.found;
  }

  /** Walks over a value, and notes where it is. `start` is that of its key or item. */
  private value(path: Path, start: number): void {
    const event = this.events[this.next];
    if (event === undefined || event.type === EVENT_ID.POP || event.type === EVENT_ID.DOCUMENT) return;
    this.next++;
    if (event.type === EVENT_ID.ALIAS)
      throw new Fault("has an alias (*): write the value itself", this.lineAt(event.anchorStart));
    this.refuse(event.anchorStart, "has an anchor (&): write values where they belong");
    this.refuse(event.tagStart, "has a tag (!): remove it");
    if (event.type === EVENT_ID.SCALAR) return this.scalar(event, path, start);
    const isInline = event.style === COLLECTION_STYLE.FLOW;
    this.end = event.start + (isInline ? 1 : 0);
    if (event.type === EVENT_ID.SEQUENCE) this.items(path);
    else this.pairs(path);
    if (isInline) this.end = this.closing();
    this.note(path, start, [event.start, this.end], isInline);
  }

  private scalar(event: ScalarEvent, path: Path, start: number): void {
    const [from, to] = this.rangeOf(event);
    const written = this.text.slice(from, to);
    if (event.style === SCALAR_STYLE.PLAIN && OCTAL.test(written))
      throw new Fault(
        `has ${written}, whose base is not clear: write it without the 0, or in quotes`,
        this.lineAt(from),
      );
    this.end = to;
    const isBlock = event.style === SCALAR_STYLE.LITERAL_BLOCK || event.style === SCALAR_STYLE.FOLDED_BLOCK;
    this.note(path, start, [from, to], !isBlock);
  }

  private items(path: Path): void {
    for (let place = 0; this.isOpen(); place++)
      this.value([...path, String(place)], this.startOf(this.events[this.next]));
    this.next++;
  }

  private pairs(path: Path): void {
    const seen = new Set<string>();
    while (this.isOpen()) {
      const start = this.startOf(this.events[this.next]);
      const key = this.key(start);
      if (seen.has(key)) throw new Fault(`has the key ${key} twice`, this.lineAt(start));
      seen.add(key);
      this.value([...path, key], start);
    }
    this.next++;
  }

  private key(start: number): string {
    const event = this.events[this.next];
    if (event?.type !== EVENT_ID.SCALAR)
      throw new Fault("has a key that is not a string", this.lineAt(start));
    this.next++;
    this.refuse(event.anchorStart, "has an anchor (&): write values where they belong");
    this.refuse(event.tagStart, "has a tag (!): keys are strings");
    const key = getScalarValue(this.text, event);
    if (key === "__proto__")
      throw new Fault("has the key __proto__, which no job spec has", this.lineAt(start));
    if (key === "<<") throw new Fault("has a merge (<<): write the keys themselves", this.lineAt(start));
    const colon = this.text.indexOf(":", this.rangeOf(event)[1]);
    this.end = colon < 0 ? this.rangeOf(event)[1] : colon + 1;
    return key;
  }

  private note(path: Path, start: number, value: readonly [number, number], isInline: boolean): void {
    this.found.set(keyOf(path), { line: this.lineAt(start), start, value, isInline });
  }

  private isOpen(): boolean {
    const event = this.events[this.next];
    return event !== undefined && event.type !== EVENT_ID.POP;
  }

  private startOf(event: Event | undefined): number {
    if (event === undefined) return 0;
    if (event.type === EVENT_ID.SCALAR) return this.rangeOf(event)[0];
    if (event.type === EVENT_ID.ALIAS) return event.anchorStart;
    return "start" in event ? event.start : 0;
  }

  /** Returns where a text stands, with its quotes; where nothing is written, as far as the walk has come. */
  private rangeOf(event: ScalarEvent): [number, number] {
    if (event.valueStart < 0) return [this.end, this.end];
    const isQuoted = event.style === SCALAR_STYLE.SINGLE_QUOTED || event.style === SCALAR_STYLE.DOUBLE_QUOTED;
    return isQuoted ? [event.valueStart - 1, event.valueEnd + 1] : [event.valueStart, event.valueEnd];
  }

  /** Returns the end of the brackets whose last value has been walked over. */
  private closing(): number {
    const rest = /[^\]}#]*(?:#.*[^\]}#]*)*/y;
    rest.lastIndex = this.end;
    return this.end + (rest.exec(this.text)?.[0].length ?? 0) + 1;
  }

  private lineOfSecond(): number {
    const rest = /^---/gm;
    rest.lastIndex = this.end;
    return this.lineAt(rest.exec(this.text)?.index ?? this.text.length);
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
