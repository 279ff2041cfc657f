/** Files as a tree of folders. */
import { natural } from "../text/natural";

export interface File {
  /** With `/`, from the root of the tree. */
  readonly path: string;
  readonly size: number;
}

export interface Folder<F extends File = File> {
  readonly name: string;
  /** Of the folder, without a slash at its end; "" for the root. */
  readonly path: string;
  /** Of all files below it. */
  readonly size: number;
  readonly count: number;
  readonly folders: readonly Folder<F>[];
  readonly files: readonly F[];
}

/** Returns the root. Folders and files are in natural order: `step-2` before `step-10`. */
export function treeOf<F extends File>(files: readonly F[]): Folder<F> {
  return folderOf("", "", files);
}

/** Returns the last part of a path. */
export function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** Returns the folders that a file is in, the outermost first. */
export function foldersOf(path: string): readonly string[] {
  const parts = path.split("/").slice(0, -1);
  return parts.map((_, index) => parts.slice(0, index + 1).join("/"));
}

function folderOf<F extends File>(name: string, path: string, files: readonly F[]): Folder<F> {
  const start = path === "" ? 0 : path.length + 1;
  const below = new Map<string, F[]>();
  const own: F[] = [];
  for (const file of files) {
    const slash = file.path.indexOf("/", start);
    if (slash < 0) own.push(file);
    else {
      const child = file.path.slice(start, slash);
      const known = below.get(child);
      if (known) known.push(file);
      else below.set(child, [file]);
    }
  }
  return {
    ...{ name, path },
    size: files.reduce((sum, file) => sum + file.size, 0),
    count: files.length,
    folders: [...below]
      .map(([child, members]) => folderOf(child, path === "" ? child : `${path}/${child}`, members))
      .sort((a, b) => natural(a.name, b.name)),
    files: own.sort((a, b) => natural(a.path, b.path)),
  };
}
