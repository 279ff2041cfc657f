/** Lists of Markdown: which lines belong to which item. */
import { indentOf, interrupts, isBlank, markerOf, withoutIndent } from "./lines";

export interface ItemLines {
  readonly isChecked: boolean | null;
  readonly lines: readonly string[];
}

export interface List {
  readonly start: number | null;
  readonly items: readonly ItemLines[];
  /** Whether there are empty lines in it. */
  readonly isLoose: boolean;
  /** The index of the line after it. */
  readonly next: number;
}

const CHECKBOX = /^\[([ xX])\][ \t]+/;

/** Returns the list that begins with a line, or null. */
export function listAt(lines: readonly string[], at: number): List | null {
  const first = markerOf(lines[at] ?? "");
  if (!first) return null;
  const items: ItemLines[] = [];
  let isLoose = false;
  let next = at;
  for (let marker = first; ;) {
    const end = endOfItem(lines, next + 1, marker.width);
    const { width } = marker;
    const further = lines.slice(next + 1, end).map((line) => withoutIndent(line, width));
    items.push(itemOf(marker.text, further));
    next = end;
    while (next < lines.length && isBlank(lines[next])) next += 1;
    const following = markerOf(lines[next] ?? "");
    const goesOn = following?.sign === first.sign;
    isLoose ||= further.some(isBlank) || (goesOn && next > end);
    if (!goesOn) return { start: first.start, items, isLoose, next };
    marker = following;
  }
}

/** Returns the end of an item: the line after its last one that is not empty. */
function endOfItem(lines: readonly string[], from: number, width: number): number {
  let end = from;
  for (let at = from; at < lines.length; at += 1) {
    const line = lines[at] ?? "";
    if (isBlank(line)) continue;
    const goesOn = end === at && !interrupts(line) && markerOf(line) === null;
    if (indentOf(line) < width && !goesOn) break;
    end = at + 1;
  }
  return end;
}

function itemOf(text: string, further: readonly string[]): ItemLines {
  const box = CHECKBOX.exec(text);
  if (!box) return { isChecked: null, lines: [text, ...further] };
  return { isChecked: box[1] !== " ", lines: [text.slice(box[0].length), ...further] };
}
