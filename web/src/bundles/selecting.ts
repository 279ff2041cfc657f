/** Which files of a folder go into a bundle: the rules of the command line, as far as a browser can know them. */
import type { PackedFile } from "./contents";
import { bytesOf } from "./contents";
import { GitRules, parentOf } from "./gitrules";
import { MOST_IGNORE_BYTES, readGitIgnore, readOwnIgnore, type Pattern } from "./ignoring";
import { Tally, type By, type LeftOut } from "./leftout";
import { EXCLUDE, neverPackedIn, upTo, type Listed } from "./listed";
import { byBytes, checkNames } from "./names";
import { OwnRules } from "./ownrules";
import { Refused } from "./refused";

/** Code is packed without what a .gitignore names, data with it. */
export type Kind = "code" | "data";

export interface Selection {
  /** Sorted by their names in the bundle. */
  readonly files: readonly PackedFile[];
  readonly leftOut: readonly LeftOut[];
}

const OWN_IGNORE = ".torchyardignore";
const PRIVATE = /^\.env(?:rc|\..*)?$/is;

/** Chooses among the files of a folder. Throws Refused. */
export async function select(all: readonly Listed[], kind: Kind): Promise<Selection> {
  const git = kind === "code" ? await gitRules(all) : null;
  const own = new OwnRules(await readOwn(all));
  const services = servicesIn(all);
  const tally = new Tally();
  const found: PackedFile[] = [];
  for (const each of all) {
    const out = whyLeftOut(each.path, services, git, own);
    if (out !== null) tally.add(out.path, out.by, each);
    else if (each.file !== null) found.push({ name: each.path.normalize("NFC"), file: each.file });
  }
  found.sort((one, other) => byBytes(one.name, other.name));
  checkNames(found.map(({ name }) => name));
  return { files: found, leftOut: tally.found() };
}

function whyLeftOut(
  path: string,
  services: readonly string[],
  git: GitRules | null,
  own: OwnRules,
): { path: string; by: By } | null {
  const never = neverPackedIn(path);
  if (never !== null) return { path: never === path ? path : `${never}/`, by: "never packed" };
  const service = services.find((folder) => path.startsWith(folder));
  if (service !== undefined) return { path: service, by: "data of a service" };
  const isWanted = own.wants(path);
  if (isWanted === false) return { path, by: OWN_IGNORE };
  const secret = upTo(path, (part) => PRIVATE.test(part));
  if (secret !== null && !own.wantsPrivate(path))
    return { path: secret === path ? path : `${secret}/`, by: "may hold passwords" };
  return isWanted === null && git?.ignores(path) ? { path, by: ".gitignore" } : null;
}

async function gitRules(all: readonly Listed[]): Promise<GitRules> {
  const repositories = new Map<string, readonly Pattern[]>();
  const ignoreFiles = new Map<string, readonly Pattern[]>();
  for (const { path, file } of all) {
    const git = upTo(path, (part) => part === ".git");
    const folder = parentOf(git ?? path) ?? "";
    const isExclude = git !== null && path === `${git.slice(0, -4)}${EXCLUDE}`;
    if (isExclude && file) repositories.set(folder, readGitIgnore(await textOf(path, file)));
    else if (git !== null && !repositories.has(folder)) repositories.set(folder, []);
    else if (git === null && file && isNamed(path, ".gitignore"))
      ignoreFiles.set(folder, readGitIgnore(await textOf(path, file)));
  }
  return new GitRules(ignoreFiles, repositories);
}

async function readOwn(all: readonly Listed[]): Promise<readonly Pattern[]> {
  const own = all.find(({ path }) => path === OWN_IGNORE);
  return own?.file ? readOwnIgnore(await textOf(OWN_IGNORE, own.file, true)) : [];
}

/** Returns the folders with the data of a service, its token among them. Throws Refused if the whole folder is one. */
function servicesIn(all: readonly Listed[]): readonly string[] {
  const paths = new Set(all.map(({ path }) => path));
  const locks = [...paths].filter((path) => isNamed(path, "children.lock"));
  const folders = locks.map((path) => path.slice(0, -"children.lock".length));
  const services = folders.filter((folder) => paths.has(`${folder}token`));
  if (services.includes(""))
    throw new Refused("This is the data directory of a service. Choose your program's folder.");
  return services;
}

function isNamed(path: string, name: string): boolean {
  return path === name || path.endsWith(`/${name}`);
}

async function textOf(path: string, file: Blob, mustBeText = false): Promise<string> {
  if (file.size > MOST_IGNORE_BYTES)
    throw new Refused(`${path} cannot be read: it has more than ${MOST_IGNORE_BYTES} bytes.`);
  try {
    return new TextDecoder("utf-8", { fatal: mustBeText }).decode(await bytesOf(path, file));
  } catch (error) {
    if (error instanceof Refused) throw error;
    throw new Refused(`${path} cannot be read: it is not UTF-8.`);
  }
}
