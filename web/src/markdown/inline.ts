/** The text of a block, as the page shows it. */
import type { Token, Tokens } from "marked";
import { visible } from "../code/visible";
import { target, unexpectedHost } from "./links";
import { DEEPEST, type Inline } from "./tree";

export function inlinesOf(tokens: readonly Token[], depth: number): readonly Inline[] {
  return tokens.filter((token) => token.type !== "checkbox").map((token) => inlineOf(token, depth));
}

function inlineOf(token: Token, depth: number): Inline {
  if (depth >= DEEPEST) return textOf(token.raw);
  const inner = (): readonly Inline[] => inlinesOf((token as Tokens.Generic).tokens ?? [], depth + 1);
  switch (token.type) {
    case "br":
      return { kind: "break" };
    case "codespan":
      return { kind: "code", text: visible((token as Tokens.Codespan).text) };
    case "strong":
    case "em":
    case "del":
      return { kind: token.type, inner: inner() };
    case "link":
      return linkOf((token as Tokens.Link).href, inner(), token.raw);
    case "image": {
      const { href, text } = token as Tokens.Image;
      return linkOf(href, [textOf(text || href)], token.raw);
    }
    case "text":
    case "escape":
      return textOf((token as Tokens.Text).text);
    default:
      return textOf(token.raw);
  }
}

function textOf(text: string): Inline {
  return { kind: "text", text: visible(text) };
}

/** Returns a link, or its source as text if its address is not http(s). A link inside a link becomes its text. */
function linkOf(href: string, inner: readonly Inline[], raw: string): Inline {
  const to = target(href);
  if (to === null) return textOf(raw);
  return { kind: "link", href: to, inner: withoutLinks(inner), host: unexpectedHost(to, wordsOf(inner)) };
}

function withoutLinks(inner: readonly Inline[]): readonly Inline[] {
  return inner.flatMap((one) => {
    if (one.kind === "link") return one.inner;
    return "inner" in one ? { ...one, inner: withoutLinks(one.inner) } : one;
  });
}

function wordsOf(inner: readonly Inline[]): string {
  return inner
    .map((one) => ("inner" in one ? wordsOf(one.inner) : one.kind === "break" ? " " : one.text))
    .join("");
}
