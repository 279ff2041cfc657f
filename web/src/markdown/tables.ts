/** Tables of Markdown. */
import { inlinesOf } from "./inline";
import { interrupts, isBlank } from "./lines";
import type { Found } from "./tree";

const RULE = /^:?-+:?$/;

export function tableOf(lines: readonly string[], at: number): Found | null {
  const [first, second] = [lines[at] ?? "", lines[at + 1] ?? ""];
  if (!first.includes("|") || !second.includes("-")) return null;
  const [head, rule] = [cellsOf(first), cellsOf(second)];
  if (head.length !== rule.length || !rule.every((cell) => RULE.test(cell))) return null;
  let end = at + 2;
  while (end < lines.length && !isBlank(lines[end]) && !interrupts(lines[end] ?? "")) end += 1;
  const rows = lines.slice(at + 2, end).map((line) => cellsOf(line).slice(0, head.length));
  return [{ kind: "table", head: head.map(inlinesOf), rows: rows.map((row) => row.map(inlinesOf)) }, end];
}

/** Returns the cells of a line. A `|` after a backslash is one of their text. */
function cellsOf(line: string): readonly string[] {
  const cells = [""];
  for (let at = 0; at < line.length; at += 1) {
    const isEscaped = line[at] === "\\" && line[at + 1] === "|";
    if (line[at] === "|") cells.push("");
    else cells[cells.length - 1] += isEscaped ? "|" : (line[at] ?? "");
    if (isEscaped) at += 1;
  }
  const trimmed = cells.map((cell) => cell.trim());
  const start = trimmed.length > 1 && trimmed[0] === "" ? 1 : 0;
  const end = trimmed.length > 1 && trimmed.at(-1) === "" ? -1 : undefined;
  return trimmed.slice(start, end);
}
