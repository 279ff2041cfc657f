import type { CodeFileView } from "../api/wire";

/** What became of a file between two bundles. `unknown`: as large as before, and too large to be compared. */
export interface Change {
  readonly path: string;
  readonly kind: "added" | "removed" | "changed" | "unknown";
}

/** Returns what differs between the files of two bundles, which have digests, by path. */
export function changesOf(
  before: readonly CodeFileView[],
  after: readonly CodeFileView[],
): readonly Change[] {
  const [old, now] = [byPath(before), byPath(after)];
  const paths = [...new Set([...old.keys(), ...now.keys()])].sort();
  return paths.flatMap((path): Change[] => {
    const kind = kindOf(old.get(path), now.get(path));
    return kind === null ? [] : [{ path, kind }];
  });
}

function byPath(files: readonly CodeFileView[]): ReadonlyMap<string, CodeFileView> {
  return new Map(files.map((file) => [file.path, file]));
}

function kindOf(old: CodeFileView | undefined, now: CodeFileView | undefined): Change["kind"] | null {
  if (!old) return "added";
  if (!now) return "removed";
  if (old.size !== now.size || old.executable !== now.executable) return "changed";
  if (old.sha256 === null || now.sha256 === null) return "unknown";
  return old.sha256 === now.sha256 ? null : "changed";
}
