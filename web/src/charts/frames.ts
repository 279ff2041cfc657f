/** One queue of drawing for all charts: only visible ones, data at most four times a second, spread over the frames. */
export interface Drawable {
  draw(): void;
}

const DATA_EVERY_MS = 250;
const FRAME_MS = 4;
/** Frames over which new data of all charts is spread: after our drawing of a chart the browser paints it, for longer. */
const SPREAD = 12;

interface Entry {
  visible: boolean;
  /** When it may be drawn; null where there is nothing to draw. */
  due: number | null;
  drawn: number;
}

const entries = new Map<Drawable, Entry>();
let frame = 0;
let timer: ReturnType<typeof setTimeout> | undefined;

/** Adds a chart. Returns how to take it out again. */
export function enter(drawable: Drawable): () => void {
  entries.set(drawable, { visible: false, due: null, drawn: -Infinity });
  return () => {
    entries.delete(drawable);
    if (entries.size === 0) stop();
  };
}

/** Says whether a chart can be seen. One that comes into sight draws what it missed. */
export function setVisible(drawable: Drawable, visible: boolean): void {
  const entry = entries.get(drawable);
  if (!entry) return;
  entry.visible = visible;
  schedule();
}

/** Asks for a drawing: of new data soon, of a changed view in the next frame. */
export function request(drawable: Drawable, what: "data" | "view"): void {
  const entry = entries.get(drawable);
  if (!entry) return;
  const due = what === "view" ? 0 : entry.drawn + DATA_EVERY_MS;
  if (entry.due !== null && entry.due <= due) return;
  entry.due = due;
  schedule();
}

function schedule(): void {
  if (frame !== 0) return;
  let soonest = Infinity;
  for (const entry of entries.values())
    if (entry.visible && entry.due !== null) soonest = Math.min(soonest, entry.due);
  if (soonest === Infinity) return;
  const wait = soonest - performance.now();
  clearTimeout(timer);
  if (wait > 0) timer = setTimeout(schedule, wait);
  else frame = requestAnimationFrame(drawSome);
}

function drawSome(): void {
  frame = 0;
  const start = performance.now();
  let left = Math.ceil([...entries.values()].filter((entry) => entry.visible).length / SPREAD);
  for (const [drawable, entry] of [...entries].sort((a, b) => a[1].drawn - b[1].drawn)) {
    if (!entry.visible || entry.due === null || entry.due > start) continue;
    if (entry.due > 0 && left-- <= 0) continue;
    entry.due = null;
    entry.drawn = start;
    drawable.draw();
    if (performance.now() - start > FRAME_MS) break;
  }
  schedule();
}

function stop(): void {
  cancelAnimationFrame(frame);
  clearTimeout(timer);
  frame = 0;
}
