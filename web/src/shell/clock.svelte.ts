/** The time of the page: one timer for all ages. */

let time = $state(Date.now());
setInterval(() => {
  if (!document.hidden) time = Date.now();
}, 1_000);
document.addEventListener("visibilitychange", () => {
  time = Date.now();
});

/** Returns the present time in ms since the epoch, to the second. Reactive. */
export function now(): number {
  return time;
}
