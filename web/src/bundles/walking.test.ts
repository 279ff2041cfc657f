/** A fake of a dropped folder: like a browser, it lists a limited number of entries a call. */
import { expect, test } from "vitest";
import type { Listed } from "./listed";
import { folderOf } from "./walking";

/** A folder, or the text of a file. */
interface Tree {
  readonly [name: string]: Tree | string;
}

const AT_ONCE = 100;

function entryOf(name: string, of: Tree | string): FileSystemEntry {
  const isFile = typeof of === "string";
  const left = isFile ? [] : Object.entries(of);
  const some = (): FileSystemEntry[] => left.splice(0, AT_ONCE).map(([inner, each]) => entryOf(inner, each));
  const entry = {
    name,
    isFile,
    isDirectory: !isFile,
    file: (then: (file: File) => void) => then(new File([String(of)], name)),
    createReader: () => ({ readEntries: (then: (entries: FileSystemEntry[]) => void) => then(some()) }),
  };
  return entry as unknown as FileSystemEntry;
}

async function walked(tree: Tree): Promise<readonly Listed[]> {
  const found: Listed[] = [];
  for await (const files of folderOf({ entries: [entryOf("net", tree)] }).files()) found.push(...files);
  return found;
}

function files(count: number): Tree {
  return Object.fromEntries(Array.from({ length: count }, (_, number) => [`f${number}`, "x"]));
}

test("all files of a folder are listed, however many and however deep", async () => {
  const found = await walked({ ...files(250), lib: { inner: files(3) }, empty: {} });
  expect(found).toHaveLength(253);
  expect(found.at(-1)?.path).toBe("lib/inner/f2");
  expect(found.every(({ file, isMore }) => file !== null && !isMore)).toBe(true);
});

test("of a folder that is never packed only some are counted, and the patterns of a repository are read", async () => {
  const git = { objects: { aa: files(900), bb: files(900), cc: files(900) }, info: { exclude: "*.key\n" } };
  const found = await walked({ ".git": git, node_modules: files(5_000), "train.py": "1" });
  const below = (folder: string): readonly Listed[] => found.filter(({ path }) => path.startsWith(folder));
  expect(below("node_modules/")).toHaveLength(1_000);
  expect(below("node_modules/").at(-1)?.isMore).toBe(true);
  expect(below(".git/").length).toBeLessThan(1_200);
  expect(found.filter(({ file }) => file !== null).map(({ path }) => path)).toEqual([
    "train.py",
    ".git/info/exclude",
  ]);
});
