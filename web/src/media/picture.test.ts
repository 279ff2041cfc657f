import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { eventually, removeAll, serve, settled, show, textOf } from "../testing";
import Picture from "./Picture.svelte";
import { readPicture } from "./pictures";

/** Tells what is watched that it comes into sight. */
let sight: (isIntersecting: boolean) => void;
let isWatched: boolean;

beforeEach(() => {
  isWatched = false;
  vi.stubGlobal(
    "IntersectionObserver",
    class {
      constructor(notify: (entries: readonly { isIntersecting: boolean }[]) => void) {
        sight = (isIntersecting) => notify([{ isIntersecting }]);
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
  await eventually(() => expect(host.querySelector("img")?.src).toMatch(/^blob:/));
  expect([asked.map(({ path }) => path), isWatched]).toEqual([[PICTURE.path], false]);
});

test("a picture that is refused says why", async () => {
  serve(() => null);
  const host = show(Picture, PICTURE);
  sight(true);
  await eventually(() => expect(textOf(host.querySelector("p"))).toBe("There is none."));
});

test("a picture that would fill the tab is not read", async () => {
  const asked = serve(() => new Blob(["png"]));
  const host = show(Picture, { ...PICTURE, size: 64 * 1024 * 1024 });
  sight(true);
  await eventually(() => expect(textOf(host)).toContain("too large to show"));
  expect(asked).toEqual([]);
});

test("a picture of very many pixels is not decoded among others, and is for who enlarges it", async () => {
  const asked = serve(() => new Blob(["png"]));
  const large = { ...PICTURE, width: 8000, height: 8000 };
  const tile = show(Picture, large);
  sight(true);
  await settled();
  expect([asked.length, textOf(tile)]).toEqual([0, "It has 64 megapixels: enlarge to view."]);
  show(Picture, { ...large, mostPixels: Infinity });
  sight(true);
  await eventually(() => expect(asked.length).toBe(1));
});

test("a file that is no picture says so", async () => {
  serve(() => new Blob(["<svg/>"]));
  const host = show(Picture, PICTURE);
  sight(true);
  const image = host.querySelector("img");
  await eventually(() => expect(image?.src).toMatch(/^blob:/));
  image?.dispatchEvent(new Event("error"));
  await eventually(() => expect(textOf(host)).toBe("The browser cannot read this picture."));
});

test("of many pictures four are read at once, and one that is out of sight again lets the next pass", async () => {
  const held: ((blob: Blob) => void)[] = [];
  const asked: string[] = [];
  vi.stubGlobal("fetch", (target: string) => {
    asked.push(new URL(target).pathname.slice(1));
    return new Promise((found) => held.push((blob) => found(new Response(blob))));
  });
  const controllers = Array.from({ length: 7 }, () => new AbortController());
  const reads = controllers.map(({ signal }, index) =>
    readPicture(`picture/${index}`, 10, signal, (file) => file).catch(() => null),
  );
  await settled();
  expect(asked).toHaveLength(4);
  controllers[4]?.abort();
  for (let done = 0; done < 6; done++) {
    await eventually(() => expect(held.length).toBeGreaterThan(done));
    held[done]?.(new Blob(["png"]));
  }
  await Promise.all(reads);
  expect(asked).toEqual([0, 1, 2, 3, 5, 6].map((index) => `picture/${index}`));
});

test("no more are read while four are decoded", async () => {
  const asked = serve(() => new Blob(["png"]));
  const decoding: (() => void)[] = [];
  const { signal } = new AbortController();
  const reads = Array.from({ length: 6 }, (_, index) =>
    readPicture(`mask/${index}`, 10, signal, () => new Promise<void>((done) => decoding.push(done))),
  );
  await eventually(() => expect(decoding).toHaveLength(4));
  await settled();
  expect(asked).toHaveLength(4);
  for (let done = 0; done < 6; done++) {
    await eventually(() => expect(decoding.length).toBeGreaterThan(done));
    decoding[done]?.();
  }
  await Promise.all(reads);
});

test("a picture that is left before it is drawn is held no longer", async () => {
  const free = vi.spyOn(URL, "revokeObjectURL");
  serve(() => new Blob(["png"]));
  const host = show(Picture, PICTURE);
  sight(true);
  await eventually(() => expect(host.querySelector("img")?.src).toMatch(/^blob:/));
  await removeAll();
  expect(free).toHaveBeenCalledTimes(1);
  free.mockRestore();
});
