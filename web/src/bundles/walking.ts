/** Lists the files of a folder that was dropped or chosen. */
import { unreadable } from "./contents";
import { listed, neverPackedIn, type Listed } from "./listed";
import { Refused } from "./refused";

/** What is never packed may have very many files, of which each costs a millisecond: so many of one such folder are counted. */
const MOST_COUNTED = 1_000;

/** What a person dropped, or chose in a field. */
export type Taken =
  | { readonly entries: readonly (FileSystemEntry | null)[] }
  | { readonly files: readonly File[] };

export interface Folder {
  readonly name: string;
  /** Yields its files, some at a time. Throws Refused. */
  readonly files: () => AsyncIterable<readonly Listed[]>;
}

/** Returns the folder that was dropped or chosen. Throws Refused if it was none, or more than one. */
export function folderOf(taken: Taken): Folder {
  if ("entries" in taken) {
    const [entry] = taken.entries;
    if (taken.entries.length !== 1 || !entry || !isFolder(entry))
      throw new Refused("Drop one folder, not files.");
    return { name: entry.name, files: () => walk(entry, "") };
  }
  const name = taken.files[0]?.webkitRelativePath.split("/")[0];
  if (!name) throw new Refused("The folder is empty.");
  return { name, files: () => chosen(taken.files, name.length + 1) };
}

async function* chosen(files: readonly File[], start: number): AsyncGenerator<readonly Listed[]> {
  yield files.map((file) => listed(file.webkitRelativePath.slice(start), file));
}

/** `counted`: the files so far of the folder around that is never packed. */
async function* walk(
  folder: FileSystemDirectoryEntry,
  prefix: string,
  counted: { files: number } | null = null,
): AsyncGenerator<readonly Listed[]> {
  const reader = folder.createReader();
  for (;;) {
    const entries = await readSome(reader, prefix);
    if (entries.length === 0) return;
    const files = await Promise.all(
      entries.filter(isFile).map(async (entry) => {
        const path = prefix + entry.name;
        return listed(path, await fileOf(entry, path));
      }),
    );
    if (counted) counted.files += files.length;
    if (counted && counted.files >= MOST_COUNTED)
      return yield files.map((file) => ({ ...file, isMore: true }));
    yield files;
    const folders = entries.filter(isFolder);
    const isFirst = ({ name }: FileSystemEntry): boolean => name === "info"; // has the file EXCLUDE of a repository
    for (const entry of [...folders.filter(isFirst), ...folders.filter((each) => !isFirst(each))]) {
      const path = prefix + entry.name;
      const within = counted ?? (neverPackedIn(path) === null ? null : { files: 0 });
      yield* walk(entry, `${path}/`, within);
      if (counted && counted.files >= MOST_COUNTED) return;
    }
  }
}

function isFile(entry: FileSystemEntry): entry is FileSystemFileEntry {
  return entry.isFile;
}

function isFolder(entry: FileSystemEntry): entry is FileSystemDirectoryEntry {
  return entry.isDirectory;
}

function readSome(reader: FileSystemDirectoryReader, prefix: string): Promise<FileSystemEntry[]> {
  return new Promise((resolve, reject) =>
    reader.readEntries(resolve, () => reject(unreadable(prefix || "The folder"))),
  );
}

function fileOf(entry: FileSystemFileEntry, path: string): Promise<File> {
  return new Promise((resolve, reject) => entry.file(resolve, () => reject(unreadable(path))));
}
