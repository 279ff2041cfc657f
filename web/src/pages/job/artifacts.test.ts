import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { JobStore } from "../../live/job.svelte";
import { setQuery } from "../../router.svelte";
import { click, removeAll, serve, settled, show, textOf, textsOf, type Asked } from "../../testing";
import Artifacts from "./Artifacts.svelte";
import { AT, view } from "./testing";

let paths: string[];
let kept: string[];
let asked: readonly Asked[];

beforeEach(() => {
  history.replaceState(null, "", "/"); // whatever the file before has left: they share a document
  setQuery({});
  kept = [];
  vi.useFakeTimers();
  asked = serve(({ path, query }) => {
    if (path.endsWith("/attempts")) return { data: [] };
    if (path.endsWith("/kept")) return { data: kept.map(viewOf), has_more: false, next: null };
    if (!path.endsWith("/artifacts")) return new Blob([`content of ${path}`]);
    const start = Number(query.get("after") ?? 0);
    const end = start + Number(query.get("limit"));
    const data = paths.slice(start, end).map(viewOf);
    return { data, has_more: end < paths.length, next: end < paths.length ? String(end) : null };
  });
});

afterEach(async () => {
  await removeAll();
  setQuery({ file: null, kept: null });
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function viewOf(file: string): object {
  return { path: file, size: 10, attempt: 1, sha256: file, created_at: AT };
}

async function opened(): Promise<HTMLElement> {
  const host = show(Artifacts, { job: view() });
  await rested();
  return host;
}

async function rested(): Promise<void> {
  await vi.advanceTimersByTimeAsync(1_100);
  await settled();
  await vi.advanceTimersByTimeAsync(10);
  await settled();
}

test("few files are shown with their folders open, and a click shows one as text", async () => {
  paths = ["plots/a b?.txt", "report.json"];
  const host = await opened();
  expect(textsOf(host, "button.name")).toEqual(["plots/", "a b?.txt", "report.json"]);
  expect(textOf(host)).toContain("2 files, 20 B.");
  click(host, "a b?.txt");
  await rested();
  expect(asked.at(-1)?.path).toBe("v1/jobs/job_a/artifacts/plots/a%20b%3F.txt");
  expect([textOf(host.querySelector("pre")), location.search]).toEqual([
    ...["content of v1/jobs/job_a/artifacts/plots/a%20b%3F.txt", "?file=plots%2Fa+b%3F.txt"],
  ]);
  click(host, "plots/");
  expect(textsOf(host, "button.name")).toEqual(["plots/", "report.json"]);
});

test("kept files of the working folder have a list of their own", async () => {
  paths = ["report.json"];
  kept = ["results/loss.txt"];
  const host = await opened();
  expect(textsOf(host, "button.name")).toEqual(["report.json", "results/", "loss.txt"]);
  expect(textOf(host)).toContain("From the working folder: 1 file, 10 B.");
  click(host, "loss.txt");
  await rested();
  expect([asked.at(-1)?.path, location.search]).toEqual([
    "v1/jobs/job_a/kept/results/loss.txt",
    "?kept=results%2Floss.txt",
  ]);
});

test("many files are in closed folders, but for those of the file in the address", async () => {
  paths = Array.from({ length: 1_500 }, (_, index) => `${index % 2 ? "odd" : "even"}/${index}.txt`);
  setQuery({ file: "odd/7.txt" });
  const host = await opened();
  expect(asked.filter(({ path, query }) => path.endsWith("/artifacts") && query.has("limit")).length).toBe(2);
  const shown = textsOf(host, "button.name");
  expect([shown.slice(0, 3), shown.length]).toEqual([["even/", "odd/", "1.txt"], 202]);
  expect(textOf(host.querySelector("pre"))).toContain("odd/7.txt");
});

test("a file that is replaced while the list is read is listed once", async () => {
  paths = [...Array.from({ length: 1_000 }, (_, index) => `${index}.txt`), "7.txt"];
  const host = await opened();
  expect(textOf(host)).toContain("1,000 files");
});

test("names say what hides or turns them, and are texts", async () => {
  paths = ["\u202egnp.exe", "a\u200bb/c.txt", "<img src=x>.txt"];
  const host = await opened();
  const names = ["<img src=x>.txt", "a⟨U+200B⟩b/", "c.txt", "⟨U+202E⟩gnp.exe"];
  expect(textsOf(host, "button.name").toSorted()).toEqual(names.toSorted());
  expect(host.querySelector("img")).toBeNull();
});

test("the list is read again as an attempt ends, and a job without files says how they come about", async () => {
  paths = [];
  const store = new JobStore("job_a");
  store.take(view());
  const host = show(Artifacts, {
    get job() {
      return store.job ?? view();
    },
  });
  await rested();
  expect(textOf(host)).toContain("$TORCHYARD_RUN_DIR/artifacts");
  paths = ["x.txt"];
  store.take(view({ position: 2 }));
  await rested();
  expect(textsOf(host, "button.name")).toEqual([]);
  store.take(view({ version: 2, state: "succeeded" }));
  await rested();
  expect(textsOf(host, "button.name")).toEqual(["x.txt"]);
});
