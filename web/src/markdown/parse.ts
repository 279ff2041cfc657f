/**
 * Markdown that somebody else has written, as a tree of what the page shows of it.
 *
 * Pictures are links, so that no other server hears who reads a note. The library may take long: `Reader` parses in a
 * worker.
 */
import { Lexer, type Token, type Tokens } from "marked";
import { visible } from "../code/visible";
import { inlinesOf } from "./inline";
import { DEEPEST, type Block, type Inline } from "./tree";

/** So many objects and lists of a tree are shown. */
const MOST_PARTS = 30_000;

/** Returns the blocks; null if there are too many parts, or if they nest too deep for the library. */
export function parse(markdown: string): readonly Block[] | null {
  try {
    const blocks = blocksOf(new CountingLexer({ gfm: true }).lex(markdown), 0);
    return partsOf(blocks) > MOST_PARTS ? null : blocks;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // of the count, or of the stack
    return null;
  }
}

/** Stops before a table of many columns, with all the cells that its short rows lack, takes gigabytes. */
class CountingLexer extends Lexer {
  private count = 0;

  override inline(text: string, tokens: Token[] = []): Token[] {
    this.count += 1;
    if (this.count > MOST_PARTS) throw new RangeError("the text has too many parts");
    return super.inline(text, tokens);
  }
}

function partsOf(tree: unknown): number {
  if (typeof tree !== "object" || tree === null) return 0;
  return Object.values(tree).reduce<number>((sum, part) => sum + partsOf(part), 1);
}

function blocksOf(tokens: readonly Token[], depth: number): readonly Block[] {
  return tokens.flatMap((token) => blockOf(token, depth) ?? []);
}

function blockOf(token: Token, depth: number): Block | null {
  if (token.type === "space" || token.type === "def" || token.type === "checkbox") return null;
  if (depth >= DEEPEST) return { kind: "code", text: visible(token.raw) };
  switch (token.type) {
    case "hr":
      return { kind: "rule" };
    case "code":
      return { kind: "code", text: visible((token as Tokens.Code).text) };
    case "heading":
      return { kind: "heading", level: (token as Tokens.Heading).depth, inner: inside(token, depth) };
    case "blockquote":
      return { kind: "quote", blocks: blocksOf(token.tokens ?? [], depth + 1) };
    case "list":
      return listOf(token as Tokens.List, depth);
    case "table":
      return tableOf(token as Tokens.Table, depth);
    case "text":
      return { kind: "line", inner: inside(token, depth) };
    default:
      return { kind: "paragraph", inner: inside(token, depth) };
  }
}

/** Returns the text of a block. An element of HTML has none: it is shown as it is written. */
function inside(token: Token, depth: number): readonly Inline[] {
  const tokens = "tokens" in token ? token.tokens : undefined;
  return tokens ? inlinesOf(tokens, depth + 1) : [{ kind: "text", text: visible(token.raw.trim()) }];
}

function listOf(list: Tokens.List, depth: number): Block {
  const items = list.items.map((item) => ({
    isChecked: item.task ? item.checked === true : null,
    blocks: blocksOf(item.tokens, depth + 1),
  }));
  return { kind: "list", start: list.ordered ? Number(list.start) : null, items };
}

function tableOf(table: Tokens.Table, depth: number): Block {
  const cells = (row: readonly Tokens.TableCell[]): readonly (readonly Inline[])[] =>
    row.map((cell) => inlinesOf(cell.tokens, depth + 1));
  return { kind: "table", head: cells(table.header), rows: table.rows.map(cells) };
}
