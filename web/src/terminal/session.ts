/** The requests of a terminal to its origin. The browser sends the origin's cookie, which no script can read. */
import { Ended, sentence, type Meeting, type Size } from "../reach/reach";

/** Where a shell is met, and of which job it is. */
export interface ShellMeeting extends Meeting {
  readonly job_name: string;
}

/** The service says so, or does not answer: it may later. */
const LATER = new Set([429, 500, 502, 503, 504]);

/** Opens a shell, or joins it again. Throws Ended if that cannot be done any more. */
export async function meet(isNew: boolean, { rows, columns }: Size): Promise<ShellMeeting> {
  const answer = await fetch(isNew ? "/shell" : "/meetings", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ rows, columns, kind: "xterm-256color" }),
  });
  if (answer.ok) return (await answer.json()) as ShellMeeting;
  const problem = (await answer.json().catch(() => null)) as { detail?: string } | null;
  const words = sentence(problem?.detail ?? `the service answered ${answer.status}`);
  throw LATER.has(answer.status) ? new Error(words) : new Ended(words);
}

/** Returns whether the attempt of the job goes on. One that cannot be asked is taken to. */
export async function isRunning(): Promise<boolean> {
  try {
    const answer = await fetch("/job");
    return !answer.ok || ((await answer.json()) as { is_running: boolean }).is_running;
  } catch {
    return true;
  }
}

export function connect(meeting: number): WebSocket {
  const address = new URL(`/stream?meeting=${meeting}`, location.href);
  address.protocol = address.protocol.replace("http", "ws");
  return new WebSocket(address);
}
