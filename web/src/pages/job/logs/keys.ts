/** How many rows a key or the wheel moves a log. */
import { ROW } from "./scrollbar";

/** Returns the rows of a key while `rows` can be seen; undefined for another key. */
export function rowsOfKey(key: string, rows: number): number | undefined {
  if (key === "ArrowDown") return 1;
  if (key === "ArrowUp") return -1;
  if (key === "PageDown" || key === " ") return rows - 2;
  return key === "PageUp" ? 2 - rows : undefined;
}

type Turn = Pick<WheelEvent, "ctrlKey" | "deltaX" | "deltaY" | "deltaMode">;

/** Returns the rows of a turn of the wheel, at least one; undefined where it zooms or moves sideways. */
export function rowsOfWheel(event: Turn): number | undefined {
  if (event.ctrlKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return undefined;
  const by = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? event.deltaY : event.deltaY / ROW;
  return by < 0 ? Math.floor(by) : Math.ceil(by);
}

/** Says whether a turn of the wheel scrolls a long line below it, which has not reached its end in that direction. */
export function scrollsLine(event: Pick<WheelEvent, "deltaY" | "target">): boolean {
  const said = event.target instanceof Element ? event.target.closest(".wraps .said") : null;
  if (!said) return false;
  const left = event.deltaY < 0 ? said.scrollTop : said.scrollHeight - said.clientHeight - said.scrollTop;
  return left >= 1;
}
