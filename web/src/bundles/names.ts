/** Which names a bundle may have: torchyard/contract/bundles/names.py says the same. */
import { Refused } from "./refused";

const MOST_FILES = 1_000_000;
const MOST_NAME_BYTES = 1000;
const MOST_PART_BYTES = 255;
const CONTROL = /\p{Cc}/u;
const LONE_SURROGATE = /\p{Surrogate}/u;

const encoder = new TextEncoder();

/** Compares two names by the bytes of their UTF-8. */
export function byBytes(one: string, other: string): number {
  const length = Math.min(one.length, other.length);
  for (let at = 0; at < length; at++) {
    const [left, right] = [one.charCodeAt(at), other.charCodeAt(at)];
    if (left !== right) return rank(left) - rank(right);
  }
  return one.length - other.length;
}

/** Checks names that are sorted and in normal form. Throws Refused for one that not every machine can have. */
export function checkNames(names: readonly string[]): void {
  if (names.length > MOST_FILES) throw new Refused(`There are more than ${MOST_FILES} files.`);
  const spelled = new Map<string, string>();
  const files = new Set(names);
  let before = "";
  for (const name of names) {
    const problem = problemOf(name);
    if (problem !== null) throw new Refused(`The name ${JSON.stringify(name.slice(0, 200))} ${problem}.`);
    if (name === before)
      throw new Refused(`Two files have the same name ${name} in different Unicode forms.`);
    before = name;
    checkSpelling(name, spelled, files);
  }
}

function problemOf(name: string): string | null {
  if (LONE_SURROGATE.test(name)) return "is not UTF-8";
  if (encoder.encode(name).length > MOST_NAME_BYTES) return `has more than ${MOST_NAME_BYTES} bytes`;
  if (CONTROL.test(name)) return "has a control character";
  const parts = name.split("/");
  if (parts.some((part) => part === "" || part === "." || part === ".."))
    return "has an empty part, `.` or `..`";
  if (parts.some((part) => encoder.encode(part).length > MOST_PART_BYTES))
    return `has a part of more than ${MOST_PART_BYTES} bytes`;
  return null;
}

/** `spelled`: the names and folders so far, by what they are without upper and lower case. */
function checkSpelling(name: string, spelled: Map<string, string>, files: ReadonlySet<string>): void {
  for (let end = name.indexOf("/"); ; end = name.indexOf("/", end + 1)) {
    const path = end < 0 ? name : name.slice(0, end);
    if (end >= 0 && files.has(path)) throw new Refused(`${path} is a file, and the folder of ${name}.`);
    const folded = path.toUpperCase().toLowerCase();
    const other = spelled.get(folded);
    if (other !== undefined && other !== path)
      throw new Refused(`${other} and ${path} differ only in upper and lower case.`);
    spelled.set(folded, path);
    if (end < 0) return;
  }
}

/** The order of UTF-8 is that of code points: halves of a pair stand for those behind all others. */
function rank(unit: number): number {
  if (unit < 0xd800) return unit;
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800;
}
