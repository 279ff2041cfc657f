/** The cases of uploads that the page and the command line have in common: tests/torchyard/client/packing reads them, too. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { Contents } from "./contents";
import { listed, type Listed } from "./listed";
import { prepare } from "./packing";
import { Refused } from "./refused";
import { select, type Kind } from "./selecting";

interface Packed {
  readonly packed: readonly string[];
  readonly sha256: string;
}

interface Case {
  readonly kind: Kind;
  readonly files: Readonly<Record<string, string>>;
  /** Files of so many zeros. */
  readonly zeros?: Readonly<Record<string, number>>;
  readonly repositories?: readonly string[];
  /** The `info/exclude` of repositories. */
  readonly exclude?: Readonly<Record<string, string>>;
}

interface PackedCase extends Case, Packed {
  readonly left_out: readonly (readonly [string, string, number, number])[];
  readonly skipped?: readonly string[];
  readonly size: number;
}

// Not imported as a module: that one would have no key `__proto__`.
const CASES = JSON.parse(
  readFileSync(join(import.meta.dirname, "../../../tests/upload_cases.json"), "utf8"),
) as {
  readonly packed: Readonly<Record<string, PackedCase>>;
  readonly refused: Readonly<Record<string, Case>>;
  readonly differs: Readonly<Record<string, Case & { readonly page: Packed }>>;
};

test.each(Object.entries(CASES.packed))("%s: packed as the command line does", async (_, each) => {
  const { contents, summary } = await prepare(filesOf(each), each.kind);
  const { files, leftOut } = await select(filesOf(each), each.kind);
  expect(files.map(({ name }) => name)).toEqual(each.packed);
  const named = leftOut.filter(({ by }) => by !== "never packed" || each.kind === "data");
  const ignored = named.filter(({ by }) => by !== "may hold passwords" && by !== "data of a service");
  expect(ignored.map(({ path, by, files, size }) => [path, by, files, size])).toEqual(each.left_out);
  const others = named.filter((one) => !ignored.includes(one));
  expect(others.map(({ path }) => path.replace(/\/$/, ""))).toEqual(each.skipped ?? []);
  expect([contents.size, await contents.digest(() => undefined)]).toEqual([each.size, each.sha256]);
  expect(await readAgain(contents)).toBe(each.sha256);
  expect(summary).toEqual({ files: files.length, size: each.size, leftOut, large: [] });
});

test.each(Object.entries(CASES.refused))("%s: refused as the command line does", async (_, each) => {
  await expect(prepare(filesOf(each), each.kind)).rejects.toThrow(Refused);
});

test.each(Object.entries(CASES.differs))("%s: packed otherwise", async (_, each) => {
  const { files } = await select(filesOf(each), each.kind);
  const sha256 = await new Contents(files).digest(() => undefined);
  expect({ packed: files.map(({ name }) => name), sha256 }).toEqual(each.page);
});

/** Returns the digest of what is read in pieces, whose ends are anywhere. */
async function readAgain(contents: Contents): Promise<string> {
  const digest = createHash("sha256");
  for (let at = 0; at < contents.size; at += 777)
    digest.update(await contents.read(at, Math.min(at + 777, contents.size)));
  return digest.digest("hex");
}

/** Returns the files as a browser lists them. */
function filesOf({ files, zeros = {}, repositories = [], exclude = {} }: Case): readonly Listed[] {
  const inGit = repositories.flatMap((folder): [string, string][] => {
    const git = folder === "" ? ".git" : `${folder}/.git`;
    return [
      [`${git}/HEAD`, "ref: refs/heads/main\n"],
      [`${git}/info/exclude`, exclude[folder] ?? ""],
    ];
  });
  return [
    ...Object.entries(zeros).map(([path, size]) => listed(path, { size } as Blob)),
    ...inGit.map(([path, text]) => listed(path, new Blob([text]))),
    ...Object.entries(files).map(([path, text]) => listed(path, new Blob([text]))),
  ];
}
