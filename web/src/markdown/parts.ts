/** Makes a tree of the parts of a text. */
import { visible } from "../code/visible";
import type { Run, Tag } from "./emphasis";
import { unexpectedHost } from "./links";
import { DEEPEST, type Inline } from "./tree";

/** What opens a link. Without an address it is text. */
export interface Bracket {
  readonly text: string;
  href: string | null;
}

export type Part =
  | { readonly kind: "text" | "code"; readonly text: string }
  | { readonly kind: "break" }
  | { readonly kind: "run"; readonly run: Run }
  | { readonly kind: "open"; readonly bracket: Bracket }
  /** Ends the last link that is open. */
  | { readonly kind: "close" };

type Level = { readonly inner: Inline[] } & (
  { readonly kind: Tag } | { readonly kind: "link"; readonly href: string } | { readonly kind: "all" }
);

/** Returns the tree. What is within a link is no link, and what nests too deep is written as it was. */
export function treeOf(parts: readonly Part[]): readonly Inline[] {
  const tree = new Tree();
  for (const part of parts) {
    if (part.kind === "text") tree.say(part.text);
    else if (part.kind === "run") tree.emphasize(part.run);
    else if (part.kind === "open") tree.open(part.bracket);
    else if (part.kind === "close") tree.close();
    else tree.add(part.kind === "code" ? { kind: "code", text: visible(part.text) } : part);
  }
  return tree.all;
}

class Tree {
  readonly all: Inline[] = [];
  private readonly levels: Level[] = [{ kind: "all", inner: this.all }];
  /** How many levels beyond the deepest one are open, and how many links. */
  private beyond = 0;
  private links = 0;

  add(one: Inline): void {
    this.levels.at(-1)?.inner.push(one);
  }

  say(text: string): void {
    const inner = this.levels.at(-1)?.inner;
    const last = inner?.at(-1);
    if (!inner || text === "") return;
    const shown = visible(text);
    if (last?.kind === "text") inner[inner.length - 1] = { kind: "text", text: last.text + shown };
    else inner.push({ kind: "text", text: shown });
  }

  emphasize(run: Run): void {
    for (const tag of run.ends) if (!this.end()) this.say(signOf(run, tag));
    this.say(run.sign.repeat(run.count));
    for (const tag of run.begins.toReversed())
      if (!this.begin({ kind: tag, inner: [] })) this.say(signOf(run, tag));
  }

  open({ text, href }: Bracket): void {
    if (href === null) return this.say(text);
    this.links += 1;
    if (this.links === 1) this.begin({ kind: "link", href, inner: [] });
  }

  close(): void {
    this.links -= 1;
    if (this.links === 0) this.end();
  }

  private begin(level: Level): boolean {
    if (this.levels.length > DEEPEST) this.beyond += 1;
    else this.levels.push(level);
    return this.beyond === 0;
  }

  private end(): boolean {
    if (this.beyond > 0) {
      this.beyond -= 1;
      return false;
    }
    const level = this.levels.pop();
    if (level?.kind === "link") this.add({ ...level, host: unexpectedHost(level.href, textOf(level.inner)) });
    else if (level && level.kind !== "all") this.add(level);
    return true;
  }
}

function signOf({ sign }: Run, tag: Tag): string {
  return tag === "em" ? sign : sign + sign;
}

function textOf(inner: readonly Inline[]): string {
  return inner
    .map((one) => ("inner" in one ? textOf(one.inner) : one.kind === "break" ? " " : one.text))
    .join("");
}
