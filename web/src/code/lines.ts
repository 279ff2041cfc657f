/** The differences of two texts, line by line, by Myers' algorithm. */

/** More lines that differ are not matched with each other: the cost grows with their square. */
const MOST_EDITS = 500;
const CONTEXT = 3;

type Edit = { readonly sign: " " | "+" | "-"; readonly line: string };

/** Returns the difference as `diff -u` writes its hunks; "" for equal texts. */
export function lineDiff(before: string, after: string): string {
  if (before === after) return "";
  const [old, now] = [linesOf(before), linesOf(after)];
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head++;
  let tail = 0;
  const most = Math.min(old.length, now.length) - head;
  while (tail < most && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail++;
  const middle = edits(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
  const same = (line: string): Edit => ({ sign: " ", line });
  const start = Math.max(0, head - CONTEXT);
  return hunks(
    [
      ...old.slice(start, head).map(same),
      ...middle,
      ...old.slice(old.length - tail, old.length - tail + CONTEXT).map(same),
    ],
    start,
  );
}

function linesOf(text: string): string[] {
  if (text === "") return [];
  const lines = text.split("\n");
  const last = lines.pop() ?? "";
  return last === "" ? lines : [...lines, `${last}\n\\ No newline at end of file`];
}

function edits(old: readonly string[], now: readonly string[]): readonly Edit[] {
  const replaced = (): Edit[] => [
    ...old.map((line): Edit => ({ sign: "-", line })),
    ...now.map((line): Edit => ({ sign: "+", line })),
  ];
  if (old.length === 0 || now.length === 0) return replaced();
  const furthest = new Map([[1, 0]]);
  const trace: ReadonlyMap<number, number>[] = [];
  for (let depth = 0; depth <= Math.min(MOST_EDITS, old.length + now.length); depth++) {
    trace.push(new Map([...furthest].filter(([k]) => Math.abs(k) <= depth + 1)));
    for (let k = -depth; k <= depth; k += 2) {
      let x = isDown(furthest, k, depth) ? at(furthest, k + 1) : at(furthest, k - 1) + 1;
      while (x < old.length && x - k < now.length && old[x] === now[x - k]) x++;
      furthest.set(k, x);
      if (x >= old.length && x - k >= now.length) return back(trace, old, now);
    }
  }
  return replaced();
}

/** Returns whether the best way to a diagonal comes from the one above it: a line is added. */
function isDown(furthest: ReadonlyMap<number, number>, k: number, depth: number): boolean {
  return k === -depth || (k !== depth && at(furthest, k - 1) < at(furthest, k + 1));
}

function at(furthest: ReadonlyMap<number, number>, k: number): number {
  return furthest.get(k) ?? 0;
}

function back(
  trace: readonly ReadonlyMap<number, number>[],
  old: readonly string[],
  now: readonly string[],
): readonly Edit[] {
  const found: Edit[] = [];
  let [x, y] = [old.length, now.length];
  for (let depth = trace.length - 1; depth >= 0; depth--) {
    const furthest = trace[depth] ?? new Map<number, number>();
    const isAdded = isDown(furthest, x - y, depth);
    const k = isAdded ? x - y + 1 : x - y - 1;
    const [fromX, fromY] = depth === 0 ? [0, 0] : [at(furthest, k), at(furthest, k) - k];
    while (x > fromX && y > fromY) {
      found.push({ sign: " ", line: old[--x] ?? "" });
      y--;
    }
    if (depth === 0) break;
    if (isAdded) found.push({ sign: "+", line: now[--y] ?? "" });
    else found.push({ sign: "-", line: old[--x] ?? "" });
  }
  return found.reverse();
}

/** Returns the edits with few equal lines around them. `start`: equal lines before the first of them. */
function hunks(all: readonly Edit[], start: number): string {
  const near = new Set<number>();
  for (const [place, { sign }] of all.entries())
    if (sign !== " ") for (let i = place - CONTEXT; i <= place + CONTEXT; i++) near.add(i);
  const parts: string[] = [];
  let [oldLine, newLine] = [start + 1, start + 1];
  for (const [place, { sign, line }] of all.entries()) {
    if (near.has(place)) {
      if (!near.has(place - 1) || place === 0) parts.push(`@@ -${oldLine} +${newLine} @@`);
      parts.push(sign + line);
    }
    if (sign !== "+") oldLine++;
    if (sign !== "-") newLine++;
  }
  return parts.join("\n");
}
