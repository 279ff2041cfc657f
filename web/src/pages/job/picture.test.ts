import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { removeAll, serve, settled, show, textOf } from "../../testing";
import Picture from "./Picture.svelte";

/** Tells what is watched that it comes into sight. */
let sight: (isIntersecting: boolean) => void;
let isWatched: boolean;

beforeEach(() => {
  isWatched = false;
  vi.stubGlobal(
    "IntersectionObserver",
    class {
      constructor(told: (entries: readonly { isIntersecting: boolean }[]) => void) {
        sight = (isIntersecting) => told([{ isIntersecting }]);
      }
      observe(): void {
        isWatched = true;
      }
      disconnect(): void {
        isWatched = false;
      }
    },
  );
});

afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
});

const PICTURE = { path: "v1/jobs/job_a/artifacts/download", size: 2000, alt: "overlay" };

test("a picture is read when it comes into sight, and once", async () => {
  const asked = serve(() => new Blob(["png"]));
  const host = show(Picture, PICTURE);
  sight(false);
  await settled();
  expect([asked.length, isWatched]).toEqual([0, true]);
  sight(true);
  await vi.waitFor(() => expect(host.querySelector("img")?.src).toMatch(/^blob:/));
  expect([asked.map(({ path }) => path), isWatched]).toEqual([[PICTURE.path], false]);
});

test("a picture that is refused says why", async () => {
  serve(() => null);
  const host = show(Picture, PICTURE);
  sight(true);
  await vi.waitFor(() => expect(textOf(host.querySelector("p"))).toBe("There is none."));
});

test("a picture that would fill the tab is not read", async () => {
  const asked = serve(() => new Blob(["png"]));
  const host = show(Picture, { ...PICTURE, size: 64 * 1024 * 1024 });
  sight(true);
  await vi.waitFor(() => expect(textOf(host)).toContain("more than is shown here"));
  expect(asked).toEqual([]);
});
