/**
 * Markdown that somebody else has written, as a tree of what the page shows of it.
 *
 * Nothing of it is HTML: a text stays a text, also what looks like an element. Pictures are links, so that no other
 * server hears who reads a note.
 */
import { lexer, type Token, type Tokens } from "marked";

export type Inline =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "code"; readonly text: string }
  | { readonly kind: "strong" | "em" | "del"; readonly inner: readonly Inline[] }
  | { readonly kind: "link"; readonly href: string; readonly inner: readonly Inline[] }
  | { readonly kind: "break" };
export interface Item {
  /** Whether it is ticked; null if it has no box. */
  readonly isChecked: boolean | null;
  readonly blocks: readonly Block[];
}
export type Block =
  | { readonly kind: "paragraph"; readonly inner: readonly Inline[] }
  | { readonly kind: "line"; readonly inner: readonly Inline[] }
  | { readonly kind: "heading"; readonly level: number; readonly inner: readonly Inline[] }
  | { readonly kind: "code"; readonly text: string }
  | { readonly kind: "quote"; readonly blocks: readonly Block[] }
  | { readonly kind: "list"; readonly start: number | null; readonly items: readonly Item[] }
  | {
      readonly kind: "table";
      readonly head: readonly (readonly Inline[])[];
      readonly rows: readonly (readonly (readonly Inline[])[])[];
    }
  | { readonly kind: "rule" };

const DEEPEST = 16;
/** The beginning of a line that nests so deep that reading it would take seconds. */
const TOO_DEEP = /^(?:(?:>|[-*+]|\d{1,9}[.)])[ \t]*){24}/m;
const SCHEMES = new Set(["http:", "https:"]);

/** Returns the blocks. What nests too deep to be read is one text. */
export function parse(markdown: string): readonly Block[] {
  if (TOO_DEEP.test(markdown)) return [{ kind: "code", text: markdown }];
  try {
    return blocksOf(lexer(markdown, { gfm: true }), 0);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // of the stack
    return [{ kind: "code", text: markdown }];
  }
}

/** Returns where a link may lead: to another site, or to an address for mail. Null: nowhere. */
export function target(href: string): string | null {
  const url = URL.canParse(href) ? new URL(href) : null;
  return url !== null && SCHEMES.has(url.protocol) ? url.href : null;
}

function blocksOf(tokens: readonly Token[], depth: number): readonly Block[] {
  return tokens.flatMap((token) => blockOf(token, depth) ?? []);
}

function blockOf(token: Token, depth: number): Block | null {
  if (token.type === "space" || token.type === "def") return null;
  if (depth >= DEEPEST) return { kind: "code", text: token.raw };
  switch (token.type) {
    case "hr":
      return { kind: "rule" };
    case "code":
      return { kind: "code", text: (token as Tokens.Code).text };
    case "heading":
      return { kind: "heading", level: (token as Tokens.Heading).depth, inner: inside(token, depth) };
    case "blockquote":
      return { kind: "quote", blocks: blocksOf(token.tokens ?? [], depth + 1) };
    case "list":
      return listOf(token as Tokens.List, depth);
    case "table":
      return tableOf(token as Tokens.Table, depth);
    case "paragraph":
      return { kind: "paragraph", inner: inside(token, depth) };
    default:
      return {
        kind: "line",
        inner: "tokens" in token ? inside(token, depth) : [{ kind: "text", text: token.raw }],
      };
  }
}

function listOf(list: Tokens.List, depth: number): Block {
  const items = list.items.map((item) => ({
    isChecked: item.task ? item.checked === true : null,
    blocks: blocksOf(
      item.tokens.filter((token) => token.type !== "checkbox"),
      depth + 1,
    ),
  }));
  return { kind: "list", start: list.ordered ? Number(list.start) || 1 : null, items };
}

function tableOf(table: Tokens.Table, depth: number): Block {
  const cells = (row: readonly Tokens.TableCell[]): readonly (readonly Inline[])[] =>
    row.map((cell) => inlinesOf(cell.tokens, depth + 1));
  return { kind: "table", head: cells(table.header), rows: table.rows.map(cells) };
}

function inside(token: Token, depth: number): readonly Inline[] {
  return inlinesOf(token.type !== "image" && "tokens" in token ? (token.tokens ?? []) : [], depth + 1);
}

function inlinesOf(tokens: readonly Token[], depth: number): readonly Inline[] {
  return tokens.filter((token) => token.type !== "checkbox").map((token) => inlineOf(token, depth));
}

function inlineOf(token: Token, depth: number): Inline {
  if (depth >= DEEPEST) return { kind: "text", text: token.raw };
  switch (token.type) {
    case "br":
      return { kind: "break" };
    case "codespan":
      return { kind: "code", text: (token as Tokens.Codespan).text };
    case "strong":
    case "em":
    case "del":
      return { kind: token.type, inner: inside(token, depth) };
    case "link":
      return linkOf((token as Tokens.Link).href, inside(token, depth), token.raw);
    case "image": {
      const { href, text } = token as Tokens.Image;
      return linkOf(href, [{ kind: "text", text: text || href }], token.raw);
    }
    case "text":
    case "escape":
      return { kind: "text", text: (token as Tokens.Text).text };
    default:
      return { kind: "text", text: token.raw };
  }
}

/** A link that leads nowhere is shown as it is written. */
function linkOf(href: string, inner: readonly Inline[], raw: string): Inline {
  const to = target(href);
  return to === null ? { kind: "text", text: raw } : { kind: "link", href: to, inner };
}
