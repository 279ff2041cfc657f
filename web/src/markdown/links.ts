/** Where a link of somebody else's text leads. */

const SCHEMES = new Set(["http:", "https:"]);
const HOST = /[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)*\.\p{L}{2,}/u;
/** A host is within one. */
const WORDS = /[\p{L}\p{N}.-]+/gu;
const LONGEST_HOST = 253;

/** Returns where a link may lead: to another site. Null: nowhere. */
export function target(href: string): string | null {
  const url = URL.canParse(href) ? new URL(href) : null;
  return url !== null && SCHEMES.has(url.protocol) ? url.href : null;
}

/** Returns the host of a link whose text names another one; null if it names none, or that one. */
export function unexpectedHost(href: string, text: string): string | null {
  const { hostname } = new URL(href);
  const isExpected = (named: string): boolean => hostname === named || hostname === `www.${named}`;
  return hostsIn(text).every(isExpected) ? null : hostname;
}

/** Returns the hosts that a text names. A word longer than any counts as one: to look for one in it would take too long. */
function hostsIn(text: string): readonly string[] {
  return [...text.matchAll(WORDS)]
    .flatMap(([word]) => (word.length > LONGEST_HOST ? word : (HOST.exec(word)?.[0] ?? [])))
    .map((host) => host.toLowerCase());
}
