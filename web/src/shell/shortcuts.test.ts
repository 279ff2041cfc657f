import { afterEach, expect, test, vi } from "vitest";
import { OPEN_PALETTE, pressed, shortcut, shortcuts } from "./shortcuts";

const stops: (() => void)[] = [];
afterEach(() => stops.splice(0).forEach((stop) => stop()));

function offer(keys: string): ReturnType<typeof vi.fn> {
  const run = vi.fn();
  stops.push(shortcut(keys, keys, run));
  return run;
}

function press(key: string, more: KeyboardEventInit = {}, target: EventTarget = document.body): void {
  const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more });
  target.addEventListener("keydown", pressed as EventListener, { once: true });
  target.dispatchEvent(event);
}

test("two keys in sequence are one shortcut", () => {
  const [go, down] = [offer("g j"), offer("j")];
  press("g");
  press("j");
  expect([go.mock.calls.length, down.mock.calls.length]).toEqual([1, 0]);
  press("j");
  expect(down).toHaveBeenCalledOnce();
});

test("keys that are typed into a field, or with a modifier, are left alone", () => {
  const find = offer("/");
  document.body.innerHTML = "<input>";
  press("/", {}, document.querySelector("input") ?? document.body);
  press("/", { ctrlKey: true });
  expect(find).not.toHaveBeenCalled();
});

test("the newest offer of a key counts, until it is taken back", () => {
  const [shell, page] = [offer("/"), offer("/")];
  press("/");
  expect([shell.mock.calls.length, page.mock.calls.length]).toEqual([0, 1]);
  expect(shortcuts()).toHaveLength(1);
  stops.pop()?.();
  press("/");
  expect(shell).toHaveBeenCalledOnce();
});

test("the palette opens from within a field, too", () => {
  const open = offer(OPEN_PALETTE);
  document.body.innerHTML = "<input>";
  press("k", { ctrlKey: true }, document.querySelector("input") ?? document.body);
  expect(open).toHaveBeenCalledOnce();
});
