/** What the specs of several jobs differ in. */
export interface SpecRow {
  /** Such as `config.optimizer.lr` or `labels.team`. */
  readonly path: string;
  /** One for each spec, as JSON; null where it lacks the path. */
  readonly values: readonly (string | null)[];
  readonly isEqual: boolean;
}

/** Returns every path of the specs with its values, in the order of the paths. */
export function specRows(specs: readonly unknown[]): readonly SpecRow[] {
  const leaves = specs.map((spec) => new Map(leavesOf(spec, "")));
  const paths = [...new Set(leaves.flatMap((found) => [...found.keys()]))].sort();
  return paths.map((path) => {
    const values = leaves.map((found) => found.get(path) ?? null);
    return { path, values, isEqual: values.every((value) => value === values[0]) };
  });
}

/** Lists are one value: their places say little. An empty object says nothing. */
function leavesOf(value: unknown, path: string): [string, string][] {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return [[path, JSON.stringify(value)]];
  return Object.entries(value).flatMap(([key, inner]) => leavesOf(inner, path ? `${path}.${key}` : key));
}
