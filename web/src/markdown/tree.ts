/** What the page shows of Markdown. Nothing of it is HTML: a text stays a text, also what looks like an element. */

export type Inline =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "code"; readonly text: string }
  | { readonly kind: "strong" | "em" | "del"; readonly inner: readonly Inline[] }
  | {
      readonly kind: "link";
      readonly href: string;
      readonly inner: readonly Inline[];
      /** The host of the address, if the text names another one. Null: the text names no host, or this one. */
      readonly host: string | null;
    }
  | { readonly kind: "break" };

export interface Item {
  /** Whether it is ticked; null if it has no box. */
  readonly isChecked: boolean | null;
  readonly blocks: readonly Block[];
}

export type Block =
  | { readonly kind: "paragraph"; readonly inner: readonly Inline[] }
  /** A paragraph of a list without empty lines. */
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

/** What nests deeper is shown as it is written. */
export const DEEPEST = 16;
