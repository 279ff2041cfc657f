/** What the page's main thread does for each frame while data comes: script and layout, from Chromium's own trace. */
import type { Page } from "playwright-core";

export interface Frames {
  /** Milliseconds of script and layout in each frame that had any, by the wall clock and by the thread's own. */
  readonly wall: number[];
  readonly cpu: number[];
  /** Milliseconds of the thread's own from one call of `requestAnimationFrame`'s to the next, where the page makes one a frame. */
  readonly called: number[];
  /** Milliseconds of each task of the main thread, the longest first; only the first ten. */
  readonly tasks: number[];
  readonly tasksCpu: number[];
  /** Frames in which the main thread took part, a second. */
  readonly rate: number;
}

interface Event {
  readonly name: string;
  readonly ph: string;
  readonly pid: number;
  readonly tid: number;
  /** Microseconds. */
  readonly ts: number;
  readonly dur?: number;
  readonly tdur?: number;
  readonly args?: {
    readonly name?: string;
    readonly data?: { readonly url?: string; readonly requestId?: string };
  };
}

const CATEGORIES = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline", "v8", "blink"];
/** Script, and what the page's changes cost: style, layout, layers. Collected garbage is the script's, too. */
const COUNTED = new Set([
  ...["EvaluateScript", "v8.compile", "FunctionCall", "FireAnimationFrame", "TimerFire", "EventDispatch"],
  ...["RunMicrotasks", "HandlePostMessage", "MinorGC", "MajorGC"],
  ...["UpdateLayoutTree", "Layout", "PrePaint", "Paint", "Layerize", "HitTest"],
]);
const TASK = "ThreadControllerImpl::RunTask";
const FRAME_US = 1e6 / 60;

/** Returns the milliseconds of processor time that the page's main thread spends within `seconds` of the end of a request. */
export async function afterRequest(
  page: Page,
  address: RegExp,
  seconds: number,
  act: () => Promise<void>,
): Promise<number> {
  const events = await traced(page, seconds, act);
  const asked = events.find(
    ({ name, args }) => name === "ResourceSendRequest" && address.test(args?.data?.url ?? ""),
  );
  const id = asked?.args?.data?.requestId;
  const ended = events.find(({ name, args }) => name === "ResourceFinish" && args?.data?.requestId === id);
  if (!id || !ended) throw new Error("the trace has no such request");
  const thread = mainThread(events);
  return events
    .filter(
      ({ name, pid, tid, ts }) => name === TASK && pid === thread.pid && tid === thread.tid && ts >= ended.ts,
    )
    .reduce((sum, { tdur = 0 }) => sum + tdur / 1000, 0);
}

/** Traces the page while one acts, and for some seconds after it. A frame is a sixtieth of a second; work counts where it begins. */
export async function frames(page: Page, seconds: number, act?: () => Promise<void>): Promise<Frames> {
  const events = await traced(page, seconds, act);
  const thread = mainThread(events);
  const own = events.filter((event) => event.tid === thread.tid && event.pid === thread.pid);
  const tasks = own.filter(({ name, dur }) => (name === TASK || name === "RunTask") && dur !== undefined);
  const work = outermost(own.filter(({ name, dur }) => COUNTED.has(name) && dur !== undefined));
  return {
    wall: perFrame(work, ({ dur = 0 }) => dur),
    cpu: perFrame(work, ({ tdur = 0 }) => tdur),
    called: perCall(work, own),
    tasks: longest(tasks, ({ dur = 0 }) => dur),
    tasksCpu: longest(tasks, ({ tdur = 0 }) => tdur),
    rate: own.filter(({ name }) => name === "FireAnimationFrame").length / seconds,
  };
}

async function traced(page: Page, seconds: number, act = () => Promise.resolve()): Promise<Event[]> {
  const browser = page.context().browser();
  if (!browser) throw new Error("the browser is gone");
  await browser.startTracing(page, { categories: CATEGORIES, screenshots: false });
  await act();
  await page.waitForTimeout(seconds * 1000);
  const trace = JSON.parse((await browser.stopTracing()).toString()) as { traceEvents: Event[] };
  return trace.traceEvents;
}

/** Returns a renderer's main thread: the one that ran most script. */
function mainThread(events: readonly Event[]): Event {
  const calls = new Map<string, number>();
  for (const { name, pid, tid } of events)
    if (name === "FunctionCall") calls.set(`${pid} ${tid}`, (calls.get(`${pid} ${tid}`) ?? 0) + 1);
  const found = events
    .filter(({ name, args }) => name === "thread_name" && args?.name === "CrRendererMain")
    .sort((a, b) => (calls.get(`${b.pid} ${b.tid}`) ?? 0) - (calls.get(`${a.pid} ${a.tid}`) ?? 0))[0];
  if (!found) throw new Error("the trace has no renderer");
  return found;
}

/** Leaves out what another event of these contains. */
function outermost(events: readonly Event[]): Event[] {
  let end = -Infinity;
  const found: Event[] = [];
  for (const event of [...events].sort((a, b) => a.ts - b.ts || (b.dur ?? 0) - (a.dur ?? 0))) {
    if (event.ts < end) continue;
    found.push(event);
    end = event.ts + (event.dur ?? 0);
  }
  return found;
}

function perFrame(events: readonly Event[], time: (event: Event) => number): number[] {
  const found = new Map<number, number>();
  for (const event of events) {
    const frame = Math.floor(event.ts / FRAME_US);
    found.set(frame, (found.get(frame) ?? 0) + time(event) / 1000);
  }
  return [...found.values()];
}

/** A machine with other work stretches a frame over several sixtieths of a second: this counts all of it. */
function perCall(work: readonly Event[], own: readonly Event[]): number[] {
  const calls = own.filter(({ name }) => name === "FireAnimationFrame").map(({ ts }) => ts);
  calls.sort((a, b) => a - b);
  const found = calls.slice(1).map(() => 0);
  let at = -1;
  for (const { ts, tdur = 0 } of work) {
    while (at + 1 < calls.length && (calls[at + 1] ?? Infinity) <= ts) at += 1;
    if (at >= 0 && at < found.length) found[at] = (found[at] ?? 0) + tdur / 1000;
  }
  return found;
}

function longest(events: readonly Event[], time: (event: Event) => number): number[] {
  return events
    .map((event) => time(event) / 1000)
    .sort((a, b) => b - a)
    .slice(0, 10);
}
