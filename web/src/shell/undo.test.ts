import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ApiError } from "../api/client";
import { dismiss, pending, sendAll, undo, undoable } from "./undo.svelte";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

test("a change is sent after five seconds, and no earlier", async () => {
  const run = vi.fn(() => Promise.resolve());
  const outcome = undoable("Cancelling digits.", run);
  await vi.advanceTimersByTimeAsync(4_999);
  expect(run).not.toHaveBeenCalled();
  expect(pending().map((item) => item.sentence)).toEqual(["Cancelling digits."]);
  await vi.advanceTimersByTimeAsync(1);
  expect(run).toHaveBeenCalledExactlyOnceWith(false);
  expect(await outcome).toBe("done");
  expect(pending()).toEqual([]);
});

test("an undone change is never sent", async () => {
  const run = vi.fn(() => Promise.resolve());
  const outcome = undoable("Deleting digits.", run);
  undo();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(run).not.toHaveBeenCalled();
  expect(await outcome).toBe("undone");
});

test("undo takes back the newest change", async () => {
  const [first, second] = [vi.fn(() => Promise.resolve()), vi.fn(() => Promise.resolve())];
  void undoable("Cancelling one.", first);
  void undoable("Cancelling two.", second);
  undo();
  await vi.advanceTimersByTimeAsync(5_000);
  expect(first).toHaveBeenCalledOnce();
  expect(second).not.toHaveBeenCalled();
});

test("leaving the page sends what waits, once, so that it outlives the page", async () => {
  const run = vi.fn(() => Promise.resolve());
  void undoable("Cancelling digits.", run);
  sendAll();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(run).toHaveBeenCalledExactlyOnceWith(true);
});

test("a change that fails stays until it is read", async () => {
  const failure = new ApiError(409, "conflict", "the job has ended");
  const outcome = undoable("Cancelling digits.", () => Promise.reject(failure));
  await vi.advanceTimersByTimeAsync(5_000);
  expect(await outcome).toBe("failed");
  expect(pending()[0]?.failure).toBe(failure);
  dismiss(pending()[0]?.id ?? 0);
  expect(pending()).toEqual([]);
});
