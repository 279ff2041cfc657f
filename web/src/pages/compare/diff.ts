/** What the specs of several jobs differ in. */
export interface SpecRow {
  /** Such as `config.optimizer.lr` or `labels.team`. */
  readonly path: string;
  /** One for each spec, as JSON; null where it lacks the path. */
  readonly values: readonly (string | null)[];
  readonly isEqual: boolean;
}

/** Live values of a job change none of its spec: what was found for the same specs is found again. */
let last: { readonly specs: readonly unknown[]; readonly rows: readonly SpecRow[] } = { specs: [], rows: [] };

/** Returns every path of the specs with its values, in the order of the paths. */
export function specRows(specs: readonly unknown[]): readonly SpecRow[] {
  const isSame = specs.length === last.specs.length && specs.every((spec, i) => spec === last.specs[i]);
  if (!isSame) last = { specs: [...specs], rows: rowsOf(specs) };
  return last.rows;
}

function rowsOf(specs: readonly unknown[]): readonly SpecRow[] {
  const leaves = specs.map((spec) => new Map(leavesOf(spec, "")));
  const paths = [...new Set(leaves.flatMap((found) => [...found.keys()]))].sort();
  return paths.map((path) => {
    const values = leaves.map((found) => found.get(path) ?? null);
    return { path, values, isEqual: values.every((value) => value === values[0]) };
  });
}

/** Lists are one value: their places say little; but the options of a script have names. An empty object says nothing. */
function leavesOf(value: unknown, path: string): [string, string][] {
  if (path === "config.args" && Array.isArray(value)) return argumentsOf(value);
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return [[path, JSON.stringify(value)]];
  return Object.entries(value).flatMap(([key, inner]) => leavesOf(inner, path ? `${path}.${key}` : key));
}

/** Returns a script's options by their names, as sweeps name them; what has no name by its place. */
function argumentsOf(words: readonly unknown[]): [string, string][] {
  const found: [string, string][] = [];
  for (let i = 0; i < words.length; i++) {
    const word = String(words[i]);
    const [, name, own] = /^--?([A-Za-z][\w-]*)(?:=(.*))?$/s.exec(word) ?? [];
    const next = words[i + 1];
    if (name === undefined) found.push([`args.${i}`, json(word)]);
    else if (own !== undefined) found.push([`args.${name}`, json(own)]);
    else if (typeof next === "string" && !/^--?[A-Za-z]/.test(next)) {
      found.push([`args.${name}`, json(next)]);
      i += 1;
    } else found.push([`args.${name}`, "true"]);
  }
  return found;
}

/** Options come as text: what reads as a number is one. */
function json(text: string): string {
  return text.trim() !== "" && Number.isFinite(Number(text)) ? String(Number(text)) : JSON.stringify(text);
}
