/** What the .gitignore files of a folder leave out. What else git knows, a browser cannot see: see decision 158. */
import { isOf, partsOf, type Parts, type Pattern } from "./ignoring";

/** The patterns of one file, of paths below a folder that has so many parts. */
interface Patterns {
  readonly depth: number;
  readonly patterns: readonly Pattern[];
}

interface Folder {
  readonly isIgnored: boolean;
  /** The newest word has the last one. */
  readonly lists: readonly Patterns[];
}

export class GitRules {
  private readonly folders = new Map<string, Folder>();

  /** By folders, `""` being the chosen one: the patterns of its .gitignore, and of the `info/exclude` of each repository. */
  constructor(
    private readonly ignoreFiles: ReadonlyMap<string, readonly Pattern[]>,
    private readonly repositories: ReadonlyMap<string, readonly Pattern[]>,
  ) {}

  /** Returns whether a file is ignored. */
  ignores(path: string): boolean {
    const folder = this.folderOf(parentOf(path) ?? "");
    return folder.isIgnored || isIgnoredBy(folder.lists, partsOf(path), false);
  }

  private folderOf(path: string): Folder {
    const known = this.folders.get(path);
    if (known) return known;
    const found = this.read(path);
    this.folders.set(path, found);
    return found;
  }

  /** A repository in a folder has rules of its own, and is ignored as a whole or not. */
  private read(path: string): Folder {
    const parts = path === "" ? [] : partsOf(path);
    const parent = path === "" ? null : this.folderOf(parentOf(path) ?? "");
    if (parent !== null && (parent.isIgnored || isIgnoredBy(parent.lists, parts, true)))
      return { isIgnored: true, lists: [] };
    const excluded = this.repositories.get(path);
    const above = excluded ? [{ depth: parts.length, patterns: excluded }] : (parent?.lists ?? []);
    const own = this.ignoreFiles.get(path);
    return { isIgnored: false, lists: own ? [...above, { depth: parts.length, patterns: own }] : above };
  }
}

/** Returns the folder of a path; null for a path at the top. */
export function parentOf(path: string): string | null {
  const end = path.lastIndexOf("/");
  return end < 0 ? null : path.slice(0, end);
}

function isIgnoredBy(lists: readonly Patterns[], path: Parts, isFolder: boolean): boolean {
  for (const { depth, patterns } of lists.toReversed()) {
    const below = path.slice(depth);
    const last = patterns.findLast((each) => (isFolder || !each.isOfFolders) && isOf(each, below));
    if (last) return !last.isNegated;
  }
  return false;
}
