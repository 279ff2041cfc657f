/** Markdown that somebody else has written, as a tree of what the page shows of it, in a time that grows with its length. */
import { visible } from "../code/visible";
import { inlinesOf } from "./inline";
import { fenceOf, interrupts, isBlank, isRule, levelOf, QUOTE } from "./lines";
import { listAt } from "./lists";
import { tableOf } from "./tables";
import { DEEPEST, type Block, type Found, type Inline } from "./tree";

const INDENTED = /^(?: {4}|\t)/;
const UNDERLINE = /^ {0,3}(?:=+|-+)$/;

export function parse(markdown: string): readonly Block[] {
  return blocksOf(markdown.split(/\r\n?|\n/), 0);
}

/** Returns the blocks of some lines, each of which is read at most once a level. */
function blocksOf(lines: readonly string[], depth: number): readonly Block[] {
  if (depth >= DEEPEST) return [codeOf(lines)];
  const blocks: Block[] = [];
  for (let at = 0; at < lines.length;) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const [block, next] = blockOf(lines, at, depth);
    blocks.push(block);
    at = next;
  }
  return blocks;
}

function blockOf(lines: readonly string[], at: number, depth: number): Found {
  const line = lines[at] ?? "";
  if (isRule(line)) return [{ kind: "rule" }, at + 1];
  return (
    fenced(lines, at) ??
    heading(line, at) ??
    quote(lines, at, depth) ??
    listOf(lines, at, depth) ??
    indented(lines, at) ??
    tableOf(lines, at) ??
    paragraph(lines, at)
  );
}

function fenced(lines: readonly string[], at: number): Found | null {
  const fence = fenceOf(lines[at] ?? "");
  if (fence === null) return null;
  const closes = (line: string): boolean => {
    const end = line.trim();
    return end.length >= fence.length && end === (fence[0] ?? "").repeat(end.length);
  };
  let end = at + 1;
  while (end < lines.length && !closes(lines[end] ?? "")) end += 1;
  return [codeOf(lines.slice(at + 1, end)), end + 1];
}

function heading(line: string, at: number): Found | null {
  const level = levelOf(line);
  if (level === 0) return null;
  const text = line.trim().slice(level).trim();
  const opened = withoutEnd(text, "#");
  const isClosed = opened === "" || /\s$/.test(opened);
  return [{ kind: "heading", level, inner: inlinesOf(isClosed ? opened.trim() : text) }, at + 1];
}

function withoutEnd(text: string, sign: string): string {
  let end = text.length;
  while (text[end - 1] === sign) end -= 1;
  return text.slice(0, end);
}

function quote(lines: readonly string[], at: number, depth: number): Found | null {
  let end = at;
  while (QUOTE.test(lines[end] ?? "")) end += 1;
  if (end === at) return null;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return [{ kind: "quote", blocks: blocksOf(inner, depth + 1) }, end];
}

function listOf(lines: readonly string[], at: number, depth: number): Found | null {
  const list = listAt(lines, at);
  if (!list) return null;
  const items = list.items.map(({ isChecked, lines: own }) => {
    const blocks = blocksOf(own, depth + 1);
    return { isChecked, blocks: list.isLoose ? blocks : blocks.map(asLine) };
  });
  return [{ kind: "list", start: list.start, items }, list.next];
}

function asLine(block: Block): Block {
  return block.kind === "paragraph" ? { kind: "line", inner: block.inner } : block;
}

function indented(lines: readonly string[], at: number): Found | null {
  let end = at;
  while (INDENTED.test(lines[end] ?? "") && !isBlank(lines[end])) end += 1;
  return end === at ? null : [codeOf(lines.slice(at, end).map((line) => line.replace(INDENTED, ""))), end];
}

function paragraph(lines: readonly string[], at: number): Found {
  let end = at + 1;
  for (; end < lines.length && !isBlank(lines[end]); end += 1) {
    const line = lines[end] ?? "";
    if (UNDERLINE.test(line.trimEnd())) {
      const level = line.includes("=") ? 1 : 2;
      return [{ kind: "heading", level, inner: inner(lines, at, end) }, end + 1];
    }
    if (interrupts(line)) break;
  }
  return [{ kind: "paragraph", inner: inner(lines, at, end) }, end];
}

function inner(lines: readonly string[], at: number, end: number): readonly Inline[] {
  const text = lines.slice(at, end).map((line) => line.trimStart());
  return inlinesOf(text.join("\n").trimEnd());
}

function codeOf(lines: readonly string[]): Block {
  return { kind: "code", text: visible(lines.join("\n")) };
}
