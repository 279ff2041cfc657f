/** The row under the keyboard: the link of a row that has `data-row`. */

/** Moves the focus to the next or the previous row, or to the first one that is on the screen. */
export function moveRow(by: 1 | -1): void {
  const rows = [...document.querySelectorAll<HTMLElement>("main [data-row]")];
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = at < 0 ? rows.find((row) => row.getBoundingClientRect().top >= 0) : rows[Math.max(0, at + by)];
  if (!next) return;
  linkOf(next)?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

/** Returns the id in `data-row` of the row that has the focus. */
export function focusedRow(): string | null {
  return document.activeElement?.closest<HTMLElement>("[data-row]")?.dataset["row"] ?? null;
}

function linkOf(row: HTMLElement): HTMLElement | null {
  return row.matches("a") ? row : row.querySelector<HTMLElement>("a, [aria-expanded]");
}
