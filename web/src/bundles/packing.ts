/** Packs a folder: says first what goes into its bundle. */
import { bytes } from "../text/bytes";
import { Contents } from "./contents";
import type { LeftOut } from "./leftout";
import type { Listed } from "./listed";
import { Refused } from "./refused";
import { select, type Kind } from "./selecting";

/** Of a bundle's tar, unless the service takes fewer. */
const MOST_BYTES = 2 * 2 ** 30;
/** A file of more bytes may be data, which is better not sent with each change of the code. */
const LARGE_BYTES = 10 << 20;
const MOST_NAMED = 10;

/** What is shown before anything is sent. */
export interface Summary {
  readonly files: number;
  /** Of the tar. */
  readonly size: number;
  readonly leftOut: readonly LeftOut[];
  /** The largest files, of those that are large. */
  readonly large: readonly { readonly name: string; readonly size: number }[];
}

/** Chooses the files, and reads none but those with rules. Throws Refused. */
export async function prepare(
  all: readonly Listed[],
  kind: Kind,
): Promise<{ contents: Contents; summary: Summary }> {
  const { files, leftOut } = await select(all, kind);
  if (files.length === 0)
    throw new Refused(`The folder has no file to upload.${leftOut.map(lineOf).join("")}`);
  const contents = new Contents(files);
  const sizes = files.map(({ name, file }) => ({ name, size: file.size }));
  const largest = sizes.sort((one, other) => other.size - one.size).slice(0, MOST_NAMED);
  if (contents.size > MOST_BYTES) {
    const named = largest.map(({ name, size }) => `\n${name}: ${bytes(size)}`).join("");
    throw new Refused(
      `The folder has ${bytes(contents.size)}; the limit is ${bytes(MOST_BYTES)}.  ` +
        `List unneeded files in .torchyardignore. The largest:${named}`,
    );
  }
  const large = largest.filter(({ size }) => size > LARGE_BYTES);
  return { contents, summary: { files: files.length, size: contents.size, leftOut, large } };
}

function lineOf({ path, by }: LeftOut): string {
  return `\n${path} is left out: ${by}`;
}
