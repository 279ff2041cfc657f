/** Counts what of a folder is left out of a bundle, by the paths that a person would name. */

export type By =
  | ".gitignore"
  | ".torchyardignore"
  | "never packed"
  | "may hold passwords"
  | "data of a service";

/** Files that are left out for one reason, and the one file or the deepest folder that has them all, with a slash. */
export interface LeftOut {
  readonly path: string;
  readonly by: By;
  readonly files: number;
  readonly size: number;
  /** Whether there are more than these files and bytes, which were not counted. */
  readonly isMore: boolean;
}

interface Group {
  readonly top: string;
  readonly by: By;
  common: string;
  files: number;
  size: number;
  isMore: boolean;
}

export class Tally {
  private readonly groups = new Map<string, Group>();

  /** Adds a file. `path` names it, or a folder with all that is below it, and a slash then. */
  add(path: string, by: By, { size, isMore = false }: { size: number; isMore?: boolean }): void {
    const top = path.split("/")[0] ?? "";
    const key = `${top}/${by}`;
    const group = this.groups.get(key) ?? { top, by, common: path, files: 0, size: 0, isMore };
    group.common = commonOf(group.common, path);
    group.files++;
    group.size += size;
    group.isMore ||= isMore;
    this.groups.set(key, group);
  }

  /** Returns what was added: one entry for each reason and each file or folder at the top. */
  found(): readonly LeftOut[] {
    return [...this.groups.values()]
      .toSorted((one, other) => compare(one.top, other.top) || compare(one.by, other.by))
      .map(({ common, by, files, size, isMore }) => ({ path: common, by, files, size, isMore }));
  }
}

function commonOf(one: string, other: string): string {
  if (one === other) return one;
  const [parts, others] = [one.split("/"), other.split("/")];
  const differs = parts.findIndex((part, index) => part !== others[index] || index === parts.length - 1);
  return `${parts.slice(0, differs).join("/")}/`;
}

function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}
