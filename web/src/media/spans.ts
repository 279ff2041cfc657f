/** How much of the page's width the panel of a key takes: small ones stand beside one another. */
import type { MediaKey } from "../api/wire";
import { gridOf, matrixOf, textIn } from "./data";

/** Of the page's columns. */
export type Span = "one" | "two" | "all";

/** A row of the matrix of ten classes and its misclassified samples fills the page. */
const SOME_PICTURES = 16;
const [NARROW_TABLE, WIDE_TABLE, SMALL_MATRIX, SHORT_TEXT] = [3, 6, 5, 600];

/** `data`: of the key's first item at the step that is shown, once it is read. */
export function spanOf({ kind, numbers }: Pick<MediaKey, "kind" | "numbers">, data: unknown): Span {
  switch (kind) {
    case "image":
    case "overlay":
      return numbers === 1 ? "one" : numbers <= SOME_PICTURES ? "two" : "all";
    case "text":
      return numbers > 1 ? "all" : (textIn(data)?.length ?? 0) > SHORT_TEXT ? "two" : "one";
    case "table": {
      const columns = gridOf(data)?.columns.length ?? 0;
      return columns <= NARROW_TABLE ? "one" : columns <= WIDE_TABLE ? "two" : "all";
    }
    case "confusion":
      return (matrixOf(data)?.classes.length ?? 0) > SMALL_MATRIX ? "two" : "one";
    default:
      return "one";
  }
}
