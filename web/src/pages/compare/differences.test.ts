import { afterEach, expect, test, vi } from "vitest";
import { click, eventually, removeAll, serve, settled, show, textOf, textsOf } from "../../testing";
import "./ChangedFiles.svelte"; // here, so that a busy machine compiles them before a test waits
import "./ChangedPackages.svelte";
import type { Compared } from "./compared";
import Differences from "./Differences.svelte";

afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
});

function compared(id: string, spec: Record<string, unknown>): Compared {
  const view = { id, name: `job ${id}`, spec } as unknown as Compared["view"];
  return { id, view, colour: { slot: 1, dash: [] }, devices: "" };
}

function script(id: string, code: string, diff = ""): Compared {
  const git = { commit: id.repeat(40), branch: "main", dirty: diff !== "", diff };
  return compared(id, { trainer: "script", config: { code, git } });
}

function differences(
  jobs: readonly Compared[],
  chosen: { readonly base?: string; readonly pair?: readonly string[] } = {},
  choose: (pair: readonly string[]) => void = () => undefined,
): HTMLElement {
  return show(Differences, { jobs, base: chosen.base ?? null, pair: chosen.pair ?? [], choose });
}

function file(path: string, sha256: string) {
  return { path, sha256, size: 1, executable: false };
}

test("the commits of two jobs are said at once, and their files compared when asked for", async () => {
  const asked = serve(({ path }) => {
    const isOld = path.startsWith("v1/jobs/a/");
    if (path.endsWith("/train.py")) return new Blob([isOld ? "lr = 1\n" : "lr = 2\n"]);
    const files = isOld ? [file("old.py", "1"), file("train.py", "1")] : [file("train.py", "2")];
    return { sha256: "7", note: null, total: files.length, files };
  });
  const host = differences([script("a", "bundle:1"), script("b", "bundle:2", "+x")]);
  await settled();
  expect(asked.length).toBe(0);
  expect(textOf(host)).toContain("job a: commit aaaaaaaaaaaa, branch main");
  expect(textOf(host)).toContain("What job b has not committed");
  const details = open(host, "Files");
  await eventually(() => expect(textOf(details)).toContain("2 of the files differ."));
  expect(textsOf(details, "li > button")).toEqual(["− old.py removed", "± train.py changed"]);
  click(details, "± train.py changed");
  await eventually(() => expect(textsOf(details, "pre span")).toEqual(["@@ -1 +1 @@", "-lr = 1", "+lr = 2"]));
});

test("the same code says so, and packages in other versions are a table", async () => {
  serve(({ path }) => ({
    attempt: 1,
    packages: path.includes("/a/") ? { numpy: "2", torch: "1" } : { scipy: "3", torch: "2" },
  }));
  const recipes = ["a", "b"].map((id) => compared(id, { trainer: "x", config: {} }));
  const host = differences([script("a", "bundle:1"), script("b", "bundle:1")]);
  const other = differences(recipes);
  expect(textOf(host)).toContain("Both have the same code.");
  expect(textOf(other)).toContain("Both run built-in recipes.");
  const details = open(host, "Packages");
  await eventually(() =>
    expect(textsOf(details, "tbody th, tbody td")).toEqual([
      ...["numpy", "2", "not installed", "scipy", "not installed", "3", "torch", "1", "2"],
    ]),
  );
});

test("the baseline is compared with the next job, unless the address names two; one that is chosen twice changes place", () => {
  const jobs = ["a", "b", "c"].map((id) => script(id, "bundle:1"));
  const shown = (host: HTMLElement): readonly string[] =>
    [...host.querySelectorAll("select")].map(({ value }) => value);
  expect(shown(differences(jobs))).toEqual(["a", "b"]);
  expect(shown(differences(jobs, { base: "b" }))).toEqual(["b", "a"]);
  expect(shown(differences(jobs, { base: "b", pair: ["gone", "c"] }))).toEqual(["b", "c"]);
  const said: (readonly string[])[] = [];
  const host = differences(jobs, { base: "b", pair: ["c", "a"] }, (pair) => said.push(pair));
  expect(shown(host)).toEqual(["c", "a"]);
  const [from] = host.querySelectorAll("select");
  if (!from) throw new Error("no choice");
  from.value = "a";
  from.dispatchEvent(new Event("change", { bubbles: true }));
  expect(said).toEqual([["a", "c"]]);
});

function open(host: HTMLElement, title: string): HTMLElement {
  const found = [...host.querySelectorAll("details")].find((item) => textOf(item).startsWith(title));
  if (!found) throw new Error(`there is no ${title}`);
  found.open = true;
  found.dispatchEvent(new Event("toggle"));
  return found;
}
