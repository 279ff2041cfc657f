import { flushSync } from "svelte";
import { afterEach, expect, test, vi } from "vitest";
import { eventually, removeAll, settled, show, textOf } from "../testing";
import { decoded, pictureType, shownAs } from "./kinds";
import Preview from "./Preview.svelte";
import { treeOf } from "./tree";

const PNG = new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0]);

afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
});

function answer(content: Uint8Array<ArrayBuffer> | string): string[] {
  const asked: string[] = [];
  vi.stubGlobal("fetch", (target: string) => {
    asked.push(new URL(target).pathname);
    return Promise.resolve(new Response(new Blob([content])));
  });
  return asked;
}

async function preview(path: string, size = 10): Promise<HTMLElement> {
  const host = show(Preview, { address: "v1/file", path, size, sha256: "x" });
  await eventually(() => {
    flushSync();
    expect(textOf(host)).not.toBe("Reading…");
  });
  return host;
}

test("files are a tree in natural order, each folder with the size of all below it", () => {
  const root = treeOf(
    ["plots/step-10.png", "plots/step-2.png", "plots/deep/er/x", "report.json"].map((path) => ({
      path,
      size: 5,
    })),
  );
  expect([root.size, root.count, root.files.map(({ path }) => path)]).toEqual([20, 4, ["report.json"]]);
  const [plots] = root.folders;
  expect([plots?.name, plots?.size, plots?.files.map(({ path }) => path)]).toEqual([
    ...["plots", 15, ["plots/step-2.png", "plots/step-10.png"]],
  ]);
  expect([plots?.folders[0]?.path, plots?.folders[0]?.folders[0]?.files[0]?.path]).toEqual([
    ...["plots/deep", "plots/deep/er/x"],
  ]);
});

test("folders with names of an object's own fields are folders like others", () => {
  const root = treeOf(["__proto__/a", "constructor/b"].map((path) => ({ path, size: 1 })));
  expect(root.folders.map(({ name, count }) => [name, count])).toEqual([
    ["__proto__", 1],
    ["constructor", 1],
  ]);
});

test("pictures and small texts are shown, programs never, and what is not says why", () => {
  expect([shownAs("a/b.PNG", 5), shownAs("x.csv", 5), shownAs("LICENSE", 5)].map(({ as }) => as)).toEqual([
    ...["picture", "text", "text"],
  ]);
  const why = (path: string, size = 5): string => {
    const shown = shownAs(path, size);
    return shown.as === "nothing" ? shown.why : "shown";
  };
  for (const name of ["x.html", "x.svg", "x.SVG", "x.xhtml", "x.pdf"])
    expect(why(name)).toContain("Executable file types");
  expect(why("x.json", 256 * 1024 + 1)).toBe("It has 256.0 KiB; the preview limit is 256.0 KiB.");
  expect(why("model.pt")).toBe("Files of the type .pt are not shown.");
  expect(why("x.txt", 0)).toBe("It is empty.");
});

test("the bytes of a picture say what it is, not its name", () => {
  const bytes = (text: string): Uint8Array => Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  expect([PNG, bytes("\xff\xd8\xff\xe0"), bytes("RIFF\x10\0\0\0WEBPVP8 ")].map(pictureType)).toEqual([
    ...["image/png", "image/jpeg", "image/webp"],
  ]);
  expect(
    [bytes("<svg xmlns="), bytes("GIF89a"), bytes("RIFF\x10\0\0\0WAVE"), bytes("")].map(pictureType),
  ).toEqual([...[null, null, null, null]]);
  expect([decoded(bytes("a\0b")), decoded(new Uint8Array([0xff, 0xfe])), decoded(bytes("ok"))]).toEqual([
    null,
    null,
    "ok",
  ]);
});

test("a text is a text node, whatever it says", async () => {
  answer("<img src=x onerror=alert(1)>");
  const host = await preview("notes.txt");
  expect([textOf(host.querySelector("pre")), host.querySelector("img")]).toEqual([
    "<img src=x onerror=alert(1)>",
    null,
  ]);
});

test("a drawing that is named a picture is not shown", async () => {
  answer("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>");
  const host = await preview("plot.png");
  expect([textOf(host), host.querySelector("img")]).toEqual(["Not a PNG, JPEG or WebP file.", null]);
});

test("a picture gets the type of its bytes", async () => {
  const made: Blob[] = [];
  const create = vi.spyOn(URL, "createObjectURL").mockImplementation((blob) => {
    made.push(blob as Blob);
    return "blob:x";
  });
  answer(PNG);
  const host = await preview("plot.jpg");
  expect([host.querySelector("img")?.getAttribute("src"), made[0]?.type]).toEqual(["blob:x", "image/png"]);
  create.mockRestore();
});

test("a file that has grown since it was listed is not read", async () => {
  let isRead = false;
  const body = new ReadableStream(
    { cancel: () => undefined, pull: () => void (isRead = true) },
    { highWaterMark: 0 },
  );
  vi.stubGlobal("fetch", () =>
    Promise.resolve(new Response(body, { headers: { "content-length": String(2 ** 31) } })),
  );
  const host = await preview("table.csv");
  expect([textOf(host), isRead]).toEqual(["It is too large to show here.", false]);
});

test("what is not shown is not read", async () => {
  const asked = answer("x");
  await preview("page.html");
  await preview("large.txt", 1 << 20);
  await settled();
  expect(asked).toEqual([]);
});
