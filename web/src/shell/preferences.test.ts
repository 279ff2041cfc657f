import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { removeAll, serve, settled, signIn } from "../testing";
import { preference } from "./preferences.svelte";
import { session } from "./session.svelte";

beforeEach(() => vi.useFakeTimers());
afterEach(async () => {
  vi.useRealTimers();
  await removeAll();
});

/** Signs in someone whom no test before has changed preferences of. */
function enter(name: string, preferences: Record<string, unknown>): void {
  signIn("member", "jobs:read");
  if (session.me) session.me = { ...session.me, name, preferences } as typeof session.me;
}

test("what is set is shown at once, and sent with what else is set by then", async () => {
  enter("ada", { charts: { folded: ["lr"] }, runs: 1 });
  const asked = serve(({ method }) =>
    method === "GET" ? { name: "ada", preferences: { charts: 1, runs: 2, other: 3 } } : {},
  );
  const charts = preference("charts", { folded: [] as readonly string[], pinned: [] as readonly string[] });
  const density = preference("density", "wide");
  expect([charts.value, density.value]).toEqual([{ folded: ["lr"], pinned: [] }, "wide"]);
  charts.value = { folded: [], pinned: ["val/iou"] };
  density.value = "narrow";
  expect([charts.value.pinned, density.value]).toEqual([["val/iou"], "narrow"]);
  expect(asked).toHaveLength(0);
  await vi.advanceTimersByTimeAsync(1_100);
  await settled();
  const sent = asked.map(({ method, path, body }) => ({ method, path, body }));
  expect(sent[0]).toMatchObject({ method: "GET", path: "v1/me" });
  const preferences = { charts: { folded: [], pinned: ["val/iou"] }, density: "narrow" };
  expect(sent.slice(1)).toEqual([{ method: "PATCH", path: "v1/me/preferences", body: { preferences } }]);
});

test("what is of another kind than the fallback is not taken, as an older page may have kept it", () => {
  enter("bob", { a: "x", b: null, c: [1], d: { e: "f", g: 1 } });
  const kept = ["a", "b", "c", "d"].map((name) => preference<unknown>(name, { e: [], g: 0 }).value);
  expect(kept).toEqual([
    { e: [], g: 0 },
    { e: [], g: 0 },
    { e: [], g: 0 },
    { e: [], g: 1 },
  ]);
});

test("leaving the page sends what waits and no stale value of another tab's, and what one user has set is no other's", async () => {
  enter("carol", { runs: 1 });
  const asked = serve(() => ({}));
  preference("charts", 0).value = 7;
  dispatchEvent(new Event("pagehide"));
  await settled();
  expect(asked.map(({ body }) => body)).toEqual([{ preferences: { charts: 7 } }]);
  enter("dave", {});
  expect(preference("charts", 0).value).toBe(0);
  await vi.advanceTimersByTimeAsync(5_000);
  expect(asked).toHaveLength(1);
});

test("what could not be sent goes with the next change", async () => {
  enter("erin", {});
  let isDown = true;
  const asked = serve(({ method }) => (isDown ? null : method === "GET" ? { preferences: {} } : {}));
  preference("charts", 0).value = 7;
  await vi.advanceTimersByTimeAsync(1_100);
  isDown = false;
  preference("runs", 0).value = 8;
  await vi.advanceTimersByTimeAsync(1_100);
  expect(asked.at(-1)?.body).toEqual({ preferences: { charts: 7, runs: 8 } });
});
