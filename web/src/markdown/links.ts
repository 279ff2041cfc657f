/** Where a link of somebody else's text leads. */

/** So far is looked for the end of an address, or of the title after it. */
const LONGEST = 2_000;
const MOST_PARENTHESES = 32;
const BARE = /https?:\/\/[^\s<\]]+/uy;
const ANGLED = /<(https?:\/\/[^\s<>]+)>/uy;
const SCHEMES = new Set(["http:", "https:"]);
const HOST = /[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)*\.\p{L}{2,}/u;
/** A host is within one. */
const WORDS = /[\p{L}\p{N}.-]+/gu;
const LONGEST_HOST = 253;
const CLOSES: Readonly<Record<string, string>> = { '"': '"', "'": "'", "(": ")" };

export interface Place {
  readonly href: string;
  /** Where the text goes on. */
  readonly end: number;
}

/** Returns where a link may lead: to another site. Null: nowhere. */
export function target(href: string): string | null {
  const url = URL.canParse(href) ? new URL(href) : null;
  return url !== null && SCHEMES.has(url.protocol) ? url.href : null;
}

/** Returns the host of a link whose text names another one; null if it names none, or that one. */
export function unexpectedHost(href: string, text: string): string | null {
  const { hostname } = new URL(href);
  const named = hostIn(text);
  return named === null || hostname === named || hostname === `www.${named}` ? null : hostname;
}

/** Returns the first host that a text names, or a word that is longer than any: to look for one in it would take too long. */
function hostIn(text: string): string | null {
  for (const [word] of text.matchAll(WORDS)) {
    const found = word.length > LONGEST_HOST ? word : HOST.exec(word)?.[0];
    if (found !== undefined) return found.toLowerCase();
  }
  return null;
}

/** Reads an address that stands alone, or in angle brackets. */
export function bareAddress(text: string, at: number): Place | null {
  ANGLED.lastIndex = BARE.lastIndex = at;
  const angled = ANGLED.exec(text);
  if (angled) return { href: angled[1] ?? "", end: at + angled[0].length };
  const found = BARE.exec(text)?.[0];
  if (found === undefined) return null;
  const href = withoutEnd(found);
  return { href, end: at + href.length };
}

/** Returns an address without the signs that end the sentence around it. */
function withoutEnd(found: string): string {
  let unopened = found.split(")").length - found.split("(").length;
  let end = found.length;
  for (; end > 0; end -= 1) {
    const last = found[end - 1] ?? "";
    if (last === ")" && unopened > 0) unopened -= 1;
    else if (!"?!.,:;*_~'\"".includes(last)) break;
  }
  return found.slice(0, end);
}

/** Reads `(address "title")` after the text of a link. */
export function addressAfter(text: string, at: number): Place | null {
  if (text[at] !== "(") return null;
  const part = text.slice(at + 1, at + 1 + LONGEST);
  const start = part.length - part.trimStart().length;
  const end = part[start] === "<" ? part.indexOf(">", start) + 1 : endOfAddress(part, start);
  if (end <= 0) return null;
  const close = afterTitle(part, end);
  if (close === null || part[close] !== ")") return null;
  const href = part.slice(start, end).replace(/^<|>$/g, "");
  return { href, end: at + 1 + close + 1 };
}

/** Returns the end of an address: a space, or a parenthesis that none of its own opened. -1: it has none. */
function endOfAddress(part: string, start: number): number {
  let depth = 0;
  for (const { 0: sign, index } of part.slice(start).matchAll(/[\s()]/g)) {
    if (sign === "(") depth += 1;
    else if (sign === ")" && depth > 0) depth -= 1;
    else return start + index;
    if (depth > MOST_PARENTHESES) return -1;
  }
  return -1;
}

function afterTitle(part: string, end: number): number | null {
  const spaceAt = (from: number): number => from + (part.length - from - part.slice(from).trimStart().length);
  const start = spaceAt(end);
  const close = CLOSES[part[start] ?? ""];
  if (close === undefined || start === end) return start;
  const last = part.indexOf(close, start + 1);
  return last < 0 ? null : spaceAt(last + 1);
}
