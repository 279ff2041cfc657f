/** How many characters fit beside each other into the text of a line. */

const SAMPLE = 64;

/** Measures it in an element that shows lines: the width beside the numbers, over that of a character. */
export function columnsOf(view: HTMLElement): number {
  const probe = document.createElement("span");
  probe.className = "probe";
  probe.textContent = "0".repeat(SAMPLE);
  const said = view.querySelector(".said");
  (said ?? view).append(probe);
  const character = probe.getBoundingClientRect().width / SAMPLE;
  probe.remove();
  const width = (said ?? view).getBoundingClientRect().width;
  return character > 0 ? Math.max(Math.floor(width / character), 1) : 80;
}
