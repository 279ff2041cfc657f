/** Fingers on a chart: two zoom, one moves a chart that is zoomed, two taps show all. Up and down scrolls the page. */
import { panned, zoomed, type Span } from "./span";

interface Touched {
  /** Returns which part is shown, of which whole; null while nothing is drawn. */
  shown(): { part: Span; whole: Span; isZoomed: boolean } | null;
  zoom(part: Span | null): void;
}

const TAP_MS = 300;
const TAP_PX = 24;

/** Follows the fingers on an element. Returns how to stop. */
export function touched(target: HTMLElement, chart: Touched): () => void {
  const fingers = new Map<number, { x: number; y: number }>();
  let tapped: { at: number; x: number; moved: boolean } | null = null;
  let last: { at: number; x: number } | null = null;

  const down = (event: PointerEvent): void => {
    if (event.pointerType !== "touch") return;
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    tapped = fingers.size === 1 ? { at: event.timeStamp, x: event.clientX, moved: false } : null;
  };
  const move = (event: PointerEvent): void => {
    const before = fingers.get(event.pointerId);
    const shown = before && chart.shown();
    if (!before || !shown) return;
    const others = [...fingers].filter(([id]) => id !== event.pointerId).map(([, finger]) => finger);
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    const { left, width } = areaOf(target);
    if (tapped && Math.abs(event.clientX - tapped.x) > TAP_PX / 2) tapped.moved = true;
    const { part, whole, isZoomed } = shown;
    const [other] = others;
    if (other) {
      const by = Math.abs(before.x - other.x) / Math.max(1, Math.abs(event.clientX - other.x));
      const around = part.min + ((other.x - left) / width) * (part.max - part.min);
      chart.zoom(zoomed(part, whole, by, around));
    } else if (isZoomed) chart.zoom(panned(part, whole, (before.x - event.clientX) / width));
  };
  const up = (event: PointerEvent): void => {
    if (!fingers.delete(event.pointerId) || !tapped || tapped.moved || event.type === "pointercancel") return;
    const isSecond = last && event.timeStamp - last.at < TAP_MS && Math.abs(event.clientX - last.x) < TAP_PX;
    last = isSecond ? null : { at: event.timeStamp, x: event.clientX };
    if (isSecond) chart.zoom(null);
  };

  const all = { pointerdown: down, pointermove: move, pointerup: up, pointercancel: up };
  const names = Object.keys(all) as (keyof typeof all)[];
  for (const name of names) target.addEventListener(name, all[name]);
  return () => {
    for (const name of names) target.removeEventListener(name, all[name]);
  };
}

function areaOf(target: HTMLElement): { left: number; width: number } {
  const { left, width } = (target.querySelector(".u-over") ?? target).getBoundingClientRect();
  return { left, width: Math.max(1, width) };
}
