/** Where a link of somebody else's text leads. */

const SCHEMES = new Set(["http:", "https:"]);
const HOST = /^[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)*\.\p{L}{2,}|^\d+(?:\.\d+){3}|^localhost$/iu;
/** A host is within one. It begins with no dot, and no two dots follow each other in it. */
const WORDS = /[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)*/gu;
const LONGEST_HOST = 253;
/** Behind a word, it makes a host of it. */
const PORT = /^:\d{2,5}(?!\d)/u;
const LETTER = /\p{L}/u;
/** What follows the scheme of an address, with a host of any form. */
const AUTHORITY = /:[/\\]+([^\s/\\?#]*)/gu;
const BEFORE_HOST = /^.*@/u;
const PORT_OF_HOST = /:\d*$/u;
const BEHIND_HOST = new Set(".,;!)'\"");

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
  const plain = text.normalize("NFKC");
  const words = [...plain.matchAll(WORDS)].flatMap(({ 0: word, index }) =>
    word.length > LONGEST_HOST || isBeforePort(plain, index + word.length, word)
      ? word
      : (HOST.exec(word)?.[0] ?? []),
  );
  const authorities = [...plain.matchAll(AUTHORITY)]
    .map(([, authority]) => hostOf((authority ?? "").slice(0, LONGEST_HOST)))
    .filter((host) => host !== "");
  return [...words, ...authorities].map((host) => host.toLowerCase());
}

function hostOf(authority: string): string {
  let end = authority.length;
  while (BEHIND_HOST.has(authority.charAt(end - 1))) end -= 1;
  return authority.slice(0, end).replace(BEFORE_HOST, "").replace(PORT_OF_HOST, "");
}

function isBeforePort(text: string, end: number, word: string): boolean {
  return LETTER.test(word) && PORT.test(text.slice(end, end + 7));
}
