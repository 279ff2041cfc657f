/** Cuts a coloured line where matches begin and end. */
import type { Span } from "./ansi";
import type { Range } from "./search";

export interface Part extends Span {
  readonly hit: boolean;
}

export function partsOf(spans: readonly Span[], hits: readonly Range[]): Part[] {
  const found: Part[] = [];
  let at = 0;
  for (const span of spans) {
    const bounds = new Set([0, span.text.length]);
    for (const hit of hits)
      for (const bound of [hit.start - at, hit.end - at])
        if (bound > 0 && bound < span.text.length) bounds.add(bound);
    const sorted = [...bounds].sort((left, right) => left - right);
    for (const [index, start] of sorted.slice(0, -1).entries()) {
      const isHit = hits.some((hit) => hit.start <= at + start && at + start < hit.end);
      found.push({ ...span, text: span.text.slice(start, sorted[index + 1]), hit: isHit });
    }
    at += span.text.length;
  }
  return found;
}
