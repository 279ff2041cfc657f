/** A folder as a browser lists it. */

export interface Listed {
  /** Below the chosen folder. */
  readonly path: string;
  readonly size: number;
  /** Null for what is never packed: it is only counted. */
  readonly file: Blob | null;
  /** Whether counting stopped early: the left-out folder has more files than the count says. */
  readonly isMore?: boolean;
}

/** Names of files and folders that are never packed, wherever they are. */
const NEVER_PACKED = [".git", ".venv", "__pycache__", "node_modules", ".torchyard"];

/** The file of a repository with patterns of files that it ignores. */
export const EXCLUDE = ".git/info/exclude";

/** Returns the path up to the part that is never packed; null if there is none. */
export function neverPackedIn(path: string): string | null {
  return upTo(path, (part) => NEVER_PACKED.includes(part));
}

/** Returns a file that was found, without its contents where nothing needs them. */
export function listed(path: string, file: Blob): Listed {
  const isNeeded = neverPackedIn(path) === null || path === EXCLUDE || path.endsWith(`/${EXCLUDE}`);
  return { path, size: file.size, file: isNeeded ? file : null };
}

/** Returns the path up to the first part that is meant; null if none is. */
export function upTo(path: string, isMeant: (part: string) => boolean): string | null {
  const parts = path.split("/");
  const found = parts.findIndex(isMeant);
  return found < 0 ? null : parts.slice(0, found + 1).join("/");
}
