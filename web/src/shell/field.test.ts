import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { whenTyped } from "./field";

const heard: string[] = [];
let field: HTMLInputElement;
let leave: () => void;

beforeEach(() => {
  vi.useFakeTimers();
  heard.length = 0;
  field = document.createElement("input");
  document.body.append(field);
  leave = whenTyped((text) => heard.push(text))(field) as () => void;
  field.focus();
});

afterEach(() => {
  leave();
  field.remove();
  vi.useRealTimers();
});

function type(text: string): void {
  field.value = text;
  field.dispatchEvent(new Event("input"));
}

function press(key: string): void {
  field.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));
}

test("what is typed counts once the typing rests", () => {
  type("u");
  vi.advanceTimersByTime(100);
  type("un");
  vi.advanceTimersByTime(100);
  expect(heard).toEqual([]);
  vi.advanceTimersByTime(100);
  expect(heard).toEqual(["un"]);
});

test("Escape empties the field and tells so at once; in an empty one it leaves it", () => {
  type("unet");
  press("Escape");
  expect([field.value, heard, document.activeElement === field]).toEqual(["", [""], true]);
  vi.runAllTimers();
  expect(heard).toEqual([""]);
  press("Escape");
  expect(document.activeElement).not.toBe(field);
});

test("a field that is gone tells nothing more", () => {
  type("unet");
  leave();
  vi.runAllTimers();
  expect(heard).toEqual([]);
});
