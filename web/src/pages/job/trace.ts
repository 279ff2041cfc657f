/** Reads a Python traceback: which of its lines are frames of the user's own code. */

export interface TraceLine {
  readonly text: string;
  readonly isOwn: boolean;
}

const FRAME = /^\s*File "([^"]+)", line \d+/;
/** Installed packages, the interpreter and what it makes itself, and our own part of a script's process. */
const OTHERS =
  /[/\\](site-packages|dist-packages|lib[/\\]python3(\.\d+)?)[/\\]|^<|[/\\]torchyard[/\\](run|integrations)[/\\]\w+\.py$/;

/** Returns the lines of a traceback. A frame is its line with the place, and the lines of code below it. */
export function traceLines(traceback: string): readonly TraceLine[] {
  let isOwn = false;
  let indent = 0;
  return traceback.split("\n").map((text) => {
    const frame = FRAME.exec(text);
    if (frame) {
      indent = indentOf(text);
      isOwn = !OTHERS.test(frame[1] ?? "");
    } else if (indentOf(text) <= indent) isOwn = false;
    return { text, isOwn };
  });
}

/** Returns the stacks of a process with those threads first that are in the user's own code, then the main one. */
export function ownThreadsFirst(stacks: string): string {
  const threads = stacks.trim().split(/\n\s*\n/);
  const rank = (thread: string): number => {
    if (traceLines(thread).some(({ isOwn }) => isOwn)) return 0;
    return thread.startsWith("Current thread") ? 1 : 2;
  };
  return threads.toSorted((one, other) => rank(one) - rank(other)).join("\n\n");
}

function indentOf(text: string): number {
  return text.length - text.trimStart().length;
}
