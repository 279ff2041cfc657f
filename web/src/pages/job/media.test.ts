import type { MediaView } from "../../api/wire";
import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { LiveEvent } from "../../live/events";
import { live } from "../../live/live.svelte";
import { answered, item, picture, seeAll } from "../../media/testing";
import { setQuery } from "../../router.svelte";
import { pressed } from "../../shell/shortcuts";
import { click, removeAll, serve, settled, show, textOf, textsOf, type Asked } from "../../testing";
import Media from "./Media.svelte";
import { AT, view } from "./testing";

let all: MediaView[];
let asked: readonly Asked[];
let tell: (event: LiveEvent) => void;

beforeEach(() => {
  vi.useFakeTimers();
  seeAll();
  vi.spyOn(live, "watch").mockImplementation((_, listener) => {
    tell = listener;
    return () => undefined;
  });
  asked = serve(({ path, query }) => (path.endsWith("/media") ? answered(all, query) : new Blob(["png"])));
});

afterEach(async () => {
  await removeAll();
  setQuery({ key: null, step: null, sample: null, filter: null });
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

async function opened(job = view()): Promise<HTMLElement> {
  const host = show(Media, { job });
  await rested();
  return host;
}

/** Waits until what was asked, and what follows from it, is shown. */
async function rested(): Promise<void> {
  for (let i = 0; i < 3; i++) {
    await vi.advanceTimersByTimeAsync(1_100);
    await settled();
  }
}

function itemsAsked(): readonly string[] {
  return asked
    .filter(({ query }) => query.has("key"))
    .map(({ query }) => `${query.get("key") ?? ""}@${query.get("to_step") ?? ""}`);
}

function samples(count: number, step: number): MediaView[] {
  return Array.from({ length: count }, (_, number) =>
    item("val/sample", "image", step, {
      number,
      caption: `picture ${number} of ${step}`,
      parts: { image: picture() },
    }),
  );
}

function say(step: number, key = "val/sample"): void {
  const event = { seq: 9, time: AT, type: "media", attempt: 1, data: { key, kind: "image", step, count: 1 } };
  const items = { job_id: "job_a", position: 9, metrics: {}, logs: [], events: [event] };
  tell({ kind: "items", items } as unknown as LiveEvent);
}

test.each([
  ["script", "run.log_image"],
  ["causal-lm", "The recipe logs samples after each evaluation."],
])("before there is anything, it is said what will fill it: %s", async (trainer, words) => {
  all = [];
  const host = show(Media, { job: view({ spec: { trainer } }) });
  await rested();
  expect(host.textContent.replace(/\s+/g, " ")).toContain(words);
  expect(host.textContent.includes("run.log_image")).toBe(trainer === "script");
});

test("the newest step is shown, and each new one, until the slider is moved", async () => {
  all = samples(1, 10);
  const host = await opened();
  expect([textOf(host.querySelector("output")), textsOf(host, ".caption")]).toEqual([
    "step 10",
    ["picture 0 of 10"],
  ]);
  all = [...all, ...samples(1, 20)];
  say(20);
  await rested();
  expect([textOf(host.querySelector("output")), textsOf(host, ".caption")]).toEqual([
    "step 20",
    ["picture 0 of 20"],
  ]);
  pressed(new KeyboardEvent("keydown", { key: "," }));
  await rested();
  expect([location.search, textsOf(host, ".caption")]).toEqual(["?step=10", ["picture 0 of 10"]]);
  all = [...all, ...samples(1, 30)];
  say(30);
  await rested();
  expect(textOf(host.querySelector("output"))).toBe("step 10");
  click(host, "Go to newest");
  await rested();
  expect([location.search, textsOf(host, ".caption")]).toEqual(["", ["picture 0 of 30"]]);
});

test("the step of the best checkpoint is one click away", async () => {
  all = [...samples(1, 10), ...samples(1, 20), ...samples(1, 30)];
  const host = await opened(view({ best: { metric: "val/loss", value: 0.5, step: 24 } }));
  click(host, "Go to best");
  await rested();
  expect([location.search, textsOf(host, ".caption")]).toEqual(["?step=20", ["picture 0 of 20"]]);
  expect(textOf(host.querySelector(".steps"))).toContain("best");
  await removeAll();
  expect(textOf(await opened())).not.toContain("best");
});

test("a step is read once, and again when the job logs it again", async () => {
  all = [...samples(1, 10), ...samples(1, 20)];
  const host = await opened();
  for (const key of [",", ".", ",", "."]) {
    pressed(new KeyboardEvent("keydown", { key }));
    await rested();
  }
  expect(itemsAsked()).toEqual(["val/sample@20", "val/sample@10"]);
  all = all.map((old) => ({ ...old, caption: "of another attempt" }));
  say(20);
  await rested();
  expect([itemsAsked().length, textsOf(host, ".caption")]).toEqual([3, ["of another attempt"]]);
});

test("of a thousand items a page is read, and of pictures out of sight nothing", async () => {
  let isSeen = false;
  const observers: (() => void)[] = [];
  vi.stubGlobal(
    "IntersectionObserver",
    class {
      constructor(private readonly tell: (entries: readonly { isIntersecting: boolean }[]) => void) {}
      observe(): void {
        observers.push(() => this.tell([{ isIntersecting: isSeen }]));
      }
      disconnect(): void {
        return;
      }
    },
  );
  all = samples(1000, 10);
  const host = await opened();
  expect(asked.map(({ query }) => query.get("limit"))).toEqual(["1"]);
  isSeen = true;
  observers[0]?.();
  await rested();
  expect([asked.length, host.querySelectorAll("li").length]).toEqual([2, 60]);
  click(host, "Show more");
  await rested();
  expect([asked.length, host.querySelectorAll("li").length]).toEqual([3, 120]);
});

test("each key shows its newest step that is not above the slider's, and says which", async () => {
  all = [
    ...samples(1, 10),
    item("val/story", "text", 4, { data: { text: "<b>four</b>", expected: "five", note: "cut" } }),
    item("train/later", "text", 99, { data: { text: "late" } }),
  ];
  setQuery({ step: "10" });
  const host = await opened();
  expect(textsOf(host, "article header")).toEqual([
    "val/sample",
    "val/story step 4",
    "train/later from step 99 on",
  ]);
  expect([textsOf(host, "pre"), host.querySelector("pre b")]).toEqual([["<b>four</b>", "five"], null]);
  expect(textsOf(host, ".which")).toEqual(["Generated", "Expected"]);
  expect(textOf(host)).toContain("cut");
});

test("a sample is enlarged, and the keys turn to the next one and to other steps, all in the address", async () => {
  all = [...samples(3, 10), ...samples(3, 20)];
  const host = await opened();
  host.querySelector<HTMLElement>("button[aria-label^='Enlarge val/sample, sample 1 ']")?.click();
  await rested();
  const dialog = host.querySelector("dialog");
  expect([new URLSearchParams(location.search).get("sample"), dialog?.open]).toEqual(["1", true]);
  const press = async (key: string): Promise<void> => {
    dialog?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    await rested();
  };
  await press("ArrowRight");
  expect(textOf(dialog)).toContain("picture 2 of 20");
  await press("ArrowRight");
  expect(textOf(dialog)).toContain("sample 3 of 3");
  await press("ArrowDown");
  expect(textOf(dialog)).toContain("picture 2 of 10");
  expect(location.search).toBe("?key=val%2Fsample&sample=2&step=10");
  dialog?.close();
  flushSync();
  expect([location.search, host.querySelector("dialog")]).toEqual(["?step=10", null]);
});

test("a sample of a copied address that lies beyond the first page is found", async () => {
  all = samples(130, 10);
  setQuery({ key: "val/sample", sample: "125" });
  const host = await opened();
  expect(textOf(host.querySelector("dialog"))).toContain("picture 125 of 10");
});

test("of thousands of keys a hundred have panels, then more; the items of each are read without the list of keys", async () => {
  all = Array.from({ length: 250 }, (_, index) => item(`k/${index}`, "text", 1, { data: { text: "t" } }));
  const host = await opened();
  const panels = (): number => host.querySelectorAll("article").length;
  expect([panels(), textOf(host.querySelector(".more"))]).toEqual([100, "Show more keys 100 of 250 keys"]);
  expect(new Set(asked.map(({ query }) => query.get("keys")))).toEqual(new Set([null, "false"]));
  expect(asked.filter(({ query }) => query.get("keys") === null)).toHaveLength(1);
  for (const shown of [200, 250]) {
    click(host, "Show more keys");
    expect(panels()).toBe(shown);
  }
  expect(host.querySelector(".more")).toBeNull();
});

test("a table is saved as CSV, as it is sorted", async () => {
  const grid = { columns: ["name", "loss"], rows: [["=a", 1], ["b", 2]] }; // prettier-ignore
  all = [item("val/table", "table", 1, { data: grid })];
  const host = await opened();
  const saved: Blob[] = [];
  vi.spyOn(URL, "createObjectURL").mockImplementation((blob) => {
    saved.push(blob as Blob);
    return "blob:x";
  });
  const clicked = vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(function (
    this: HTMLAnchorElement,
  ) {
    expect(this.download).toBe("val-table.csv");
  });
  click(host, "loss");
  click(host, "CSV");
  expect(clicked).toHaveBeenCalledTimes(1);
  expect(await saved[0]?.text()).toBe("name,loss\r\nb,2\r\n'=a,1\r\n");
});

test("a text without a long line has nothing to wrap", async () => {
  all = ["short\n".repeat(9), "long ".repeat(30)].map((text, number) =>
    item("val/story", "text", 1, { number, data: { text } }),
  );
  const host = await opened();
  expect(textsOf(host, "article button")).toEqual(["copy", "wrap", "copy"]);
});

test("keys are grouped, and the filter leaves those that contain it", async () => {
  all = ["val/a", "val/b", "train/c"].map((key) => item(key, "text", 1, { data: { text: key } }));
  const host = await opened();
  expect(textsOf(host, "h2")).toEqual(["val", "train"]);
  setQuery({ filter: "B" });
  await rested();
  expect([textsOf(host, "h2"), textsOf(host, "pre")]).toEqual([["val"], ["val/b"]]);
  setQuery({ filter: "none" });
  flushSync();
  expect(textOf(host)).toContain("No key contains “none”.");
});

test("a cell of the confusion matrix shows the misclassified samples that belong to it", async () => {
  const matrix = { classes: ["3", "5"], matrix: [[9, 1], [2, 8]] }; // prettier-ignore
  const kept = ["5 instead of 3 (0.93)", "3 instead of 5 (0.9)"].map((caption, number) =>
    item("val/misclassified", "image", 10, { number, caption, parts: { image: picture(8, 8) } }),
  );
  all = [item("val/confusion", "confusion", 10, { data: matrix }), ...kept];
  const host = await opened();
  expect(textOf(host)).toContain("Confused most often: 5 as 3 (2), 3 as 5 (1).");
  const canvas = host.querySelector("canvas[aria-label^='val/confusion']");
  for (const key of ["ArrowDown", "ArrowRight", "Enter"])
    canvas?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  await rested();
  expect(textOf(host.querySelector(".said"))).toBe("true 3, predicted 5: 1, 10.0% of what is 3");
  const article = host.querySelector("article[aria-label='val/confusion']");
  expect(textOf(article)).toContain("1 of the 2 samples of val/misclassified at step 10 is in this cell.");
  expect(textsOf(article ?? host, "li")).toEqual(["5 instead of 3 (0.93)"]);
});

test("the confusion matrix follows the step, and so do the samples of its cell", async () => {
  const at = (step: number, wrong: number): MediaView[] => [
    item("confusion", "confusion", step, { data: { classes: ["3", "5"], matrix: [[9, wrong], [0, 8]] } }), // prettier-ignore
    ...Array.from({ length: wrong }, (_, number) =>
      item("misclassified", "text", step, {
        number,
        caption: "5 instead of 3 (0.9)",
        data: { text: `${step}` },
      }),
    ),
  ];
  all = [...at(10, 3), ...at(20, 1)];
  const host = await opened();
  const matrix = host.querySelector<HTMLElement>("article[aria-label='confusion']");
  for (const key of ["ArrowDown", "ArrowRight", "Enter"])
    matrix
      ?.querySelector("canvas")
      ?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  await rested();
  expect(textOf(matrix)).toContain("Confused most often: 3 as 5 (1).");
  expect(textsOf(matrix ?? host, "li .written")).toEqual(["20"]);
  pressed(new KeyboardEvent("keydown", { key: "," }));
  await rested();
  expect(textOf(matrix)).toContain("Confused most often: 3 as 5 (3).");
  expect(textsOf(matrix ?? host, "li .written")).toEqual(["10", "10", "10"]);
});

test("one slider has a thousand uneven steps, a place for each, and reads where it rests", async () => {
  const steps = Array.from({ length: 1000 }, (_, index) => index * index);
  all = steps.map((step) => item("val/story", "text", step, { data: { text: `story of ${step}` } }));
  const host = await opened();
  const slider = host.querySelector<HTMLInputElement>("input[type=range]");
  const slide = (place: number): void => {
    if (slider) slider.value = String(place);
    slider?.dispatchEvent(new Event("input", { bubbles: true }));
    flushSync();
  };
  for (let place = 999; place >= 500; place--) slide(place);
  await rested();
  expect([slider?.max, slider?.getAttribute("aria-valuetext")]).toEqual(["999", "step 250,000"]);
  expect(textsOf(host, "pre")).toEqual(["story of 250000"]);
  expect(itemsAsked()).toEqual(["val/story@998001", "val/story@250000"]);
});

test("a matrix has the figures of its classes as a table, unless some are left out", async () => {
  const data = { classes: ["3", "5"], matrix: [[9, 1], [2, 8]] }; // prettier-ignore
  all = [
    item("val/part", "confusion", 10, { data: { ...data, note: "2 of 9 classes" } }),
    item("val/whole", "confusion", 10, { data }),
  ];
  const host = await opened();
  const tables = (key: string): readonly string[] => {
    const article = host.querySelector<HTMLElement>(`article[aria-label='${key}']`);
    click(article ?? host, "table");
    return textsOf(article ?? host, "tbody tr:first-child td");
  };
  expect(tables("val/part")).toEqual(["5", "3", "2", "20.0%"]);
  expect(tables("val/whole")).toEqual(["3", "10", "90.0%", "81.8%", "85.7%", "5", "3", "2", "20.0%"]);
});

test("a histogram says its bins by the keyboard, and shows all of them as a table", async () => {
  all = [item("train/weights", "histogram", 1, { data: { edges: [0, 1, 2], counts: [3, 1] } })];
  const host = await opened();
  const bars = host.querySelector("svg[role=img]");
  expect(bars?.getAttribute("aria-label")).toBe("Histogram of train/weights: 4 values from 0 to 2");
  bars?.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true, cancelable: true }));
  flushSync();
  expect(textOf(host.querySelector("[role=status]"))).toBe("0 … 1: 3 (75.0%)");
  click(host, "table");
  expect(textsOf(host, "tbody td")).toEqual(["0", "1", "3", "1", "2", "1"]);
});

test("of a long table the rows that are near are in the document, and a column's head sorts it", async () => {
  const rows = Array.from({ length: 2000 }, (_, index) => [`row ${index}`, (index * 7) % 2000]);
  all = [item("val/table", "table", 1, { data: { columns: ["name", "loss"], rows } })];
  const host = await opened();
  expect(host.querySelectorAll("tbody tr").length).toBeLessThan(60);
  expect(textOf(host)).toContain("2,000 rows");
  click(host, "loss");
  expect(textsOf(host, "tbody tr:first-child td")[1]).toBe("1999");
  expect(textsOf(host, "th").join()).toBe("name,loss ↓");
});

test("a failure says what it is, and data of another form that it is none", async () => {
  all = [item("val/table", "table", 1, { data: { columns: 3 } as unknown as MediaView["data"] })];
  expect(textOf(await opened())).toContain("not a valid table");
  serve(() => null);
  expect(textOf((await opened()).querySelector("[role=alert]"))).toContain(
    "The media cannot be read. There is none.",
  );
});

test("an overlay may have the name of what every object has", async () => {
  all = [item("constructor", "overlay", 10, { parts: { image: picture(), truth: picture() } })];
  const host = await opened();
  expect(textsOf(host, "h3")).toEqual(["constructor"]);
  expect(host.querySelector<HTMLInputElement>(".opacity input")?.value).toBe("0.6");
});
