import { afterEach, expect, test } from "vitest";
import { href, navigate, route } from "../../../router.svelte";
import { removeAll, serve } from "../../../testing";
import { lineAt, openAt } from "./at";

afterEach(async () => {
  await removeAll();
  navigate(href(""));
});

/** A log whose lines came at these seconds; the first `gone` are not kept. */
function log(times: readonly number[], gone = 0): ReturnType<typeof serve> {
  return serve(({ query }) => {
    const line = Math.max(Number(query.get("after")), gone) + 1;
    const at = times[line - 1];
    const data = at === undefined ? [] : [{ line, time: new Date(at * 1000).toISOString() }];
    return { data, total: times.length };
  });
}

test("the line at a time is the last one that came until then", async () => {
  log([10, 20, 20, 30, 40]);
  expect(await Promise.all([5, 10, 25, 30, 99].map((time) => lineAt("job_a", time)))).toEqual([
    1, 1, 3, 4, 5,
  ]);
});

test("a long log is halved, not read", async () => {
  const asked = log(Array.from({ length: 100_000 }, (_, i) => i));
  expect(await lineAt("job_a", 70_000.5)).toBe(70_001);
  expect(asked.length).toBeLessThan(20);
});

test("lines that are not kept are passed over, and an empty log has none", async () => {
  log([1, 2, 3, 4], 2);
  expect(await lineAt("job_a", 1)).toBe(3);
  log([]);
  expect(await lineAt("job_a", 1)).toBeNull();
});

test("the log opens at the line, without one from its beginning, and not over what one has opened since", async () => {
  log([10, 20, 30]);
  await openAt("job_a", 20, () => true);
  expect([route().id, route().query.get("line")]).toEqual(["job_a", "2"]);
  serve(() => null);
  await openAt("job_b", 20, () => true);
  expect([route().id, route().query.get("tab"), route().query.get("line")]).toEqual(["job_b", "logs", null]);
  navigate(href("jobs"));
  await openAt("job_a", 20, () => false);
  expect(route().page).toBe("jobs");
});
