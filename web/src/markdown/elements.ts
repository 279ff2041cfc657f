/**
 * Makes elements of a tree of Markdown: of a fixed set, with texts.
 *
 * Not a template: one keeps track of each part, and takes seconds for the longest notes.
 */
import type { Block, Inline, Item } from "./tree";

const HEADINGS = ["h3", "h4", "h5", "h6"] as const;

type Child = Node | string;

export function nodesOf(blocks: readonly Block[]): readonly Child[] {
  return blocks.flatMap((block) => (block.kind === "line" ? lineOf(block.inner) : elementOf(block)));
}

function elementOf(block: Exclude<Block, { readonly kind: "line" }>): HTMLElement {
  switch (block.kind) {
    case "paragraph":
      return made("p", lineOf(block.inner));
    case "heading": // the page's own headings are above: h2 is the job's part
      return made(HEADINGS[block.level - 1] ?? "h6", lineOf(block.inner));
    case "code":
      return made("pre", [made("code", [block.text])]);
    case "quote":
      return made("blockquote", nodesOf(block.blocks));
    case "rule":
      return made("hr");
    case "table":
      return made("table", [
        made("thead", [rowOf("th", block.head)]),
        made(
          "tbody",
          block.rows.map((row) => rowOf("td", row)),
        ),
      ]);
    case "list":
      return listOf(block.start, block.items);
  }
}

function rowOf(tag: "th" | "td", cells: readonly (readonly Inline[])[]): HTMLElement {
  return made(
    "tr",
    cells.map((cell) => made(tag, lineOf(cell))),
  );
}

function listOf(start: number | null, items: readonly Item[]): HTMLElement {
  const elements = items.map(itemOf);
  if (start === null) return made("ul", elements);
  const list = made("ol", elements);
  list.start = start;
  return list;
}

function itemOf({ isChecked, blocks }: Item): HTMLElement {
  if (isChecked === null) return made("li", nodesOf(blocks));
  const box = made("input");
  box.type = "checkbox";
  box.disabled = true;
  box.checked = isChecked;
  box.setAttribute("aria-label", "done");
  const item = made("li", [box, ...nodesOf(blocks)]);
  item.className = "task";
  return item;
}

function lineOf(parts: readonly Inline[]): readonly Child[] {
  return parts.flatMap((part) => {
    switch (part.kind) {
      case "text":
        return part.text;
      case "code":
        return made("code", [part.text]);
      case "break":
        return made("br");
      case "link":
        return linkOf(part.href, part.inner, part.host);
      default:
        return made(part.kind, lineOf(part.inner));
    }
  });
}

function linkOf(href: string, inner: readonly Inline[], host: string | null): readonly Child[] {
  const link = made("a", lineOf(inner));
  link.href = href;
  link.target = "_blank";
  link.rel = "noopener noreferrer nofollow";
  if (host === null) return [link];
  const shown = made("span", [`(${host})`]);
  shown.className = "host";
  return [link, shown];
}

function made<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  children: readonly Child[] = [],
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  for (const child of children) element.append(child); // one by one: a call takes only so many arguments
  return element;
}
