import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { session } from "../../shell/session.svelte";
import { removeAll, serve, signIn } from "../../testing";
import { forgetView, savedViews, saveView } from "./kept.svelte";

beforeEach(() => vi.useFakeTimers());
afterEach(async () => {
  vi.useRealTimers();
  await removeAll();
});

test("a view is kept beside those that another tab has kept and without those that it has forgotten", async () => {
  signIn("member", "jobs:read");
  const [old, mine, theirs] = ["old", "mine", "theirs"].map((name) => ({ name, query: `q=${name}` }));
  if (session.me) session.me = { ...session.me, name: "ida", preferences: { runs: { views: [old] } } };
  let kept = { runs: { views: [theirs] as unknown[] } };
  serve(({ method, body }) => {
    if (method === "GET") return { preferences: kept };
    kept = (body as { preferences: typeof kept }).preferences;
    return {};
  });
  if (mine) saveView(mine);
  expect(savedViews()).toEqual([old, mine]);
  await vi.advanceTimersByTimeAsync(1_100);
  expect(kept).toEqual({ runs: { views: [theirs, mine] } });
  expect(savedViews()).toEqual([theirs, mine]);
  forgetView("mine");
  kept = { runs: { views: [old, mine] } };
  await vi.advanceTimersByTimeAsync(1_100);
  expect(savedViews()).toEqual([old]);
});
