/** Diffs as `git diff` writes them, for people. */
export type Kind = "added" | "removed" | "file" | "place" | "same";

/** Consecutive lines of one kind. `file` names a file, `place` says where in it the next lines are. */
export interface Run {
  readonly kind: Kind;
  readonly text: string;
}

/** As many are drawn one by one: who writes a diff may alternate its signs. */
const MOST_RUNS = 3_000;

/** Returns a diff by runs of lines; what is too much comes as one run without signs. */
export function runsOf(diff: string): readonly Run[] {
  const runs: { kind: Kind; lines: string[] }[] = [];
  const lines = diff.replace(/\n$/, "").split("\n");
  let isHead = true;
  for (const [at, line] of lines.entries()) {
    const kind = kindOf(line, isHead);
    if (kind === "file") isHead = true;
    else if (kind === "place") isHead = false;
    const last = runs.at(-1);
    if (last?.kind === kind) last.lines.push(line);
    else if (runs.length < MOST_RUNS) runs.push({ kind, lines: [line] });
    else {
      runs.push({ kind: "same", lines: lines.slice(at) });
      break;
    }
  }
  return runs.map(({ kind, lines: texts }) => ({ kind, text: texts.join("\n") }));
}

function kindOf(line: string, isHead: boolean): Kind {
  if (line.startsWith("diff --git ")) return "file";
  if (line.startsWith("@@")) return "place";
  if (isHead) return "file"; // `---`, `+++`, `index …`: they come before the first place
  return line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "same";
}
