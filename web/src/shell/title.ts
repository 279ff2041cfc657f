/** The name and the sign of the browser's tab. The signs are files: a page may not make images (CSP). */
import type { JobState } from "../api/wire";
import plain from "../signs/favicon.svg";
import cancelled from "../signs/favicon-cancelled.svg";
import failed from "../signs/favicon-failed.svg";
import paused from "../signs/favicon-paused.svg";
import queued from "../signs/favicon-queued.svg";
import running from "../signs/favicon-running.svg";
import succeeded from "../signs/favicon-succeeded.svg";

const SIGNS: Record<JobState, string> = {
  queued,
  starting: running,
  running,
  paused,
  succeeded,
  failed,
  cancelled,
};

/** Names the tab, such as "36% cracks-unet", and gives it the sign of a state. */
export function setTitle(text: string, state: JobState | null = null): void {
  document.title = text === "" ? "Torchyard" : `${text} – Torchyard`;
  const link = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
  const sign = state === null ? plain : SIGNS[state];
  if (link && link.getAttribute("href") !== sign) link.href = sign;
}
