/** A package that one of two jobs lacks, or has in another version. */
export interface VersionChange {
  readonly name: string;
  readonly before: string | null;
  readonly after: string | null;
}

type Versions = Readonly<Record<string, string>>;

/** Returns what differs between the packages of two jobs, by name. */
export function versionChanges(before: Versions, after: Versions): readonly VersionChange[] {
  const [old, now] = [new Map(Object.entries(before)), new Map(Object.entries(after))];
  return [...new Set([...old.keys(), ...now.keys()])]
    .sort()
    .map((name) => ({ name, before: old.get(name) ?? null, after: now.get(name) ?? null }))
    .filter((change) => change.before !== change.after);
}
