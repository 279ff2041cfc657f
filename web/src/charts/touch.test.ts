import { afterEach, beforeEach, expect, test } from "vitest";
import type { Span } from "./span";
import { touched } from "./touch";

let target: HTMLElement;
let part: Span;
let zooms: (Span | null)[];
let stop: () => void;
const WHOLE = { min: 0, max: 100 };

beforeEach(() => {
  target = document.body.appendChild(document.createElement("div"));
  target.getBoundingClientRect = () => ({ left: 0, width: 100 }) as DOMRect;
  [part, zooms] = [WHOLE, []];
  stop = touched(target, {
    shown: () => ({ part, whole: WHOLE, isZoomed: part !== WHOLE }),
    zoom: (to) => void zooms.push(((part = to ?? WHOLE), to)),
  });
});
afterEach(() => {
  stop();
  target.remove();
});

function finger(what: string, pointerId: number, clientX: number, at = 0): void {
  const event = new PointerEvent(`pointer${what}`, { pointerId, pointerType: "touch", clientX });
  Object.defineProperty(event, "timeStamp", { value: at });
  target.dispatchEvent(event);
}

test("two fingers zoom around the one that rests", () => {
  finger("down", 1, 40);
  finger("down", 2, 60);
  finger("move", 2, 80);
  expect(zooms).toEqual([{ min: 20, max: 70 }]);
  finger("move", 2, 60);
  expect(zooms.at(-1)).toBeNull();
});

test("one finger moves a chart that is zoomed, and leaves another to the page", () => {
  finger("down", 1, 50);
  finger("move", 1, 30);
  expect(zooms).toEqual([]);
  finger("up", 1, 30);
  part = { min: 20, max: 40 };
  finger("down", 1, 50);
  finger("move", 1, 0);
  expect(zooms).toEqual([{ min: 30, max: 50 }]);
});

test("two taps show all; two that are slow, or of which one has moved, do not", () => {
  const tap = (at: number, to = 50): void => {
    finger("down", 1, 50, at);
    finger("move", 1, to, at);
    finger("up", 1, to, at + 20);
  };
  tap(0);
  tap(1000);
  tap(3000, 90);
  tap(3100);
  expect(zooms).toEqual([]);
  tap(3200);
  expect(zooms).toEqual([null]);
});

test("a mouse is none of its business", () => {
  const mouse = (what: string, clientX: number): boolean =>
    target.dispatchEvent(new PointerEvent(`pointer${what}`, { pointerId: 1, pointerType: "mouse", clientX }));
  part = { min: 20, max: 40 };
  mouse("down", 50);
  mouse("move", 10);
  expect(zooms).toEqual([]);
});
