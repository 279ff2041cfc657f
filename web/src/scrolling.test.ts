import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Scrolling } from "./scrolling";

/** The page can be scrolled this far. */
let longest = 1000;
let offset = 0;
let frames: FrameRequestCallback[] = [];
let stop: () => void;
let scrolling: Scrolling;

function scroll(to: number): void {
  offset = Math.min(to, longest);
  window.dispatchEvent(new Event("scroll"));
}

function frame(): void {
  const due = frames;
  frames = [];
  for (const each of due) each(performance.now());
}

beforeEach(() => {
  [longest, offset, frames] = [1000, 0, []];
  vi.stubGlobal("scrollTo", (_: number, to: number) => scroll(to));
  vi.stubGlobal("requestAnimationFrame", (each: FrameRequestCallback) => frames.push(each));
  vi.stubGlobal("cancelAnimationFrame", () => (frames = []));
  vi.spyOn(window, "scrollY", "get").mockImplementation(() => offset);
  history.replaceState(null, "");
  scrolling = new Scrolling();
  stop = scrolling.start();
});

afterEach(() => {
  stop();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

test("an entry that one goes back to is scrolled to where it was left, once it is long enough", () => {
  scroll(700);
  scrolling.begin();
  scroll(0);
  longest = 100; // the list is read anew
  scrolling.goTo(null);
  frame();
  expect(offset).toBe(100);
  longest = 1000;
  frame();
  expect(offset).toBe(700);
});

test("who scrolls meanwhile goes where they want", () => {
  scroll(700);
  scrolling.begin();
  scrolling.goTo(null);
  window.dispatchEvent(new Event("wheel"));
  scroll(20);
  frame();
  expect(offset).toBe(20);
});
