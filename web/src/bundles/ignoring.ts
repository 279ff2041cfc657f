/** The lines of .gitignore and .torchyardignore. */
import { fits, globOf, InvalidPattern, MANY, matches, type Glob } from "./glob";
import { Refused } from "./refused";

export const MOST_IGNORE_BYTES = 1 << 20;

/** The parts of a path, each by its code points. */
export type Parts = readonly (readonly number[])[];

export interface Pattern {
  readonly line: string;
  /** Whether it brings back what a line before leaves out. */
  readonly isNegated: boolean;
  /** Whether it is one of folders alone. */
  readonly isOfFolders: boolean;
  readonly parts: readonly (Glob | typeof MANY)[];
}

const ANY_PART: Glob = [MANY];

export function partsOf(path: string): Parts {
  return path.split("/").map((part) => [...part].map((char) => char.codePointAt(0) ?? 0));
}

/** Reads a .gitignore as git does: what is no pattern matches nothing. */
export function readGitIgnore(text: string): readonly Pattern[] {
  return text.split("\n").flatMap((line) => {
    try {
      return patternOf(line) ?? [];
    } catch (error) {
      if (error instanceof InvalidPattern) return [];
      throw error;
    }
  });
}

/** Reads a .torchyardignore. Throws Refused for a line that is no pattern. */
export function readOwnIgnore(text: string): readonly Pattern[] {
  return text.split(/\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/).flatMap((line) => {
    try {
      return patternOf(line) ?? [];
    } catch (error) {
      if (!(error instanceof InvalidPattern)) throw error;
      throw new Refused(`.torchyardignore cannot be read: the line ${line} ${error.message}.`);
    }
  });
}

/** Returns whether the pattern is that of the whole path. */
export function isOf(pattern: Pattern, path: Parts): boolean {
  return fits(pattern.parts, path, matches);
}

/** Returns the pattern of a line; null for a comment, an empty line, and what matches nothing. Throws InvalidPattern. */
function patternOf(line: string): Pattern | null {
  const text = trimmed(line);
  if (text === "" || text.startsWith("#") || text === "/") return null;
  const isNegated = text.startsWith("!");
  const signed = isNegated ? text.slice(1) : text;
  const isOfFolders = signed.endsWith("/");
  const path = isOfFolders ? signed.slice(0, -1) : signed;
  if (path === "") return null;
  const parts = path.startsWith("/") ? path.slice(1).split("/") : path.split("/");
  const wishes: (Glob | typeof MANY)[] = path.includes("/") ? [] : [MANY];
  for (const [index, part] of parts.entries()) {
    const glob = part === "**" ? ANY_PART : globOf(part);
    if (glob === null) return null;
    if (part !== "**" || index === parts.length - 1) {
      if (part === "**" && wishes.at(-1) !== MANY) wishes.push(MANY);
      wishes.push(glob);
    } else if (wishes.at(-1) !== MANY) wishes.push(MANY);
  }
  return { line: text, isNegated, isOfFolders, parts: wishes };
}

/** Returns the line without the blanks at its end; one behind a backslash stays. */
function trimmed(line: string): string {
  let end = line.length;
  while (end > 0 && " \t\r".includes(line[end - 1] ?? "") && line[end - 2] !== "\\") end--;
  return line.slice(0, end);
}
