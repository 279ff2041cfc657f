/** Moves rows of a table by keys and by dragging. */
import type { Attachment } from "svelte/attachments";

/** Returns the list with the item at another place. */
export function moved<T>(list: readonly T[], item: T, place: number): readonly T[] {
  const left = list.filter((other) => other !== item);
  const at = Math.max(0, Math.min(left.length, place));
  return [...left.slice(0, at), item, ...left.slice(at)];
}

/** Lets a row be dragged by its handle onto another row, and moved by the arrow keys; `move` gets the new place. */
export function handle(place: number, move: (to: number) => void): Attachment<HTMLElement> {
  return (node) => {
    const pressed = (event: KeyboardEvent): void => {
      const by = event.key === "ArrowUp" ? -1 : event.key === "ArrowDown" ? 1 : 0;
      if (by === 0) return;
      event.preventDefault();
      move(place + by);
    };
    const taken = (event: PointerEvent): void => {
      node.setPointerCapture(event.pointerId);
      event.preventDefault();
      node.focus();
    };
    const released = (event: PointerEvent): void => {
      const rows = [...(node.closest("tbody")?.rows ?? [])];
      const to = rows.findIndex((row) => event.clientY < row.getBoundingClientRect().bottom);
      if (node.hasPointerCapture(event.pointerId)) move(to < 0 ? rows.length - 1 : to);
    };
    node.addEventListener("keydown", pressed);
    node.addEventListener("pointerdown", taken);
    node.addEventListener("pointerup", released);
    return () => {
      node.removeEventListener("keydown", pressed);
      node.removeEventListener("pointerdown", taken);
      node.removeEventListener("pointerup", released);
    };
  };
}
