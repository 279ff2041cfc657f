import { afterEach, expect, test, vi } from "vitest";
import { setQuery } from "../../router.svelte";
import {
  click,
  eventually,
  removeAll,
  serve,
  settled,
  show,
  textOf,
  textsOf,
  type Asked,
} from "../../testing";
import Code from "./Code.svelte";
import { view } from "./testing";

const COMMIT = "0123456789abcdef0123456789abcdef01234567";
const DIFF =
  "diff --git a/x.py b/x.py\nindex 1..2\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n+new \u202e<b>\n same\n";

const PACKAGES = { numpy: "2.5.1", torch: "2.14.1+cpu", torchvision: "0.29" };

afterEach(async () => {
  await removeAll();
  setQuery({ file: null });
  vi.unstubAllGlobals();
});

function job(git: Record<string, unknown> | null = null) {
  return view({
    spec: { trainer: "script", config: { code: "bundle:sha256:7", entrypoint: "train.py", git } },
  });
}

async function opened(
  answer: (asked: Asked) => unknown,
  git: Record<string, unknown> | null = null,
): Promise<HTMLElement> {
  serve((asked) => (asked.path.endsWith("/packages") ? { attempt: 1, packages: PACKAGES } : answer(asked)));
  const host = show(Code, { job: job(git) });
  await settled();
  return host;
}

const LISTED = {
  sha256: "7",
  note: null,
  total: 5_001,
  files: [
    { path: "lib/net.py", size: 5, executable: false, sha256: null },
    { path: "train.py", size: 8, executable: true, sha256: null },
  ],
};

test("the files are a tree, the program is marked, and a file is shown with the numbers of its lines", async () => {
  const text = "import x\n<img src=x onerror=alert(1)>\n";
  const host = await opened(({ path }) => (path.endsWith("/code") ? LISTED : new Blob([text])));
  expect(textsOf(host, "button.name")).toEqual(["lib/", "net.py", "train.py"]);
  expect(textOf(host)).toContain("5,001 files, 13 B: the first 2 are listed.");
  expect(textOf(host)).toContain("the program, executable");
  click(host, "train.py");
  await settled();
  await eventually(() => expect(host.querySelectorAll("pre").length).toBe(2));
  const [numbers, source] = host.querySelectorAll("pre");
  expect([numbers?.textContent, source?.textContent, host.querySelector("img")]).toEqual([
    "1\n2",
    text,
    null,
  ]);
});

test("the commit, the branch and the changes are said, with their signs and without turned text", async () => {
  const git = { commit: COMMIT, branch: "main", dirty: true, diff: DIFF };
  const host = await opened(() => LISTED, git);
  expect(textOf(host)).toContain("commit 0123456789ab, branch main, with uncommitted changes");
  expect([textsOf(host, ".added"), textsOf(host, ".removed")]).toEqual([["+new ⟨U+202E⟩<b>"], ["-old"]]);
});

test("code that is not stored, and a file that has no text, say why", async () => {
  const host = await opened(() => ({
    sha256: null,
    note: "The code lies on the workers.",
    total: 0,
    files: [],
  }));
  expect(textOf(host)).toContain("The code lies on the workers.");
});

test("packages are a table that is searched", async () => {
  vi.useFakeTimers();
  const host = await opened(() => LISTED);
  await vi.advanceTimersByTimeAsync(10);
  await settled();
  vi.useRealTimers();
  expect(textsOf(host, "tbody tr").length).toBe(3);
  const search = host.querySelector<HTMLInputElement>("input[type=search]");
  if (!search) throw new Error("there is no search");
  search.value = "Torch";
  search.dispatchEvent(new Event("input", { bubbles: true }));
  await settled();
  expect(textsOf(host, "tbody tr")).toEqual(["torch2.14.1+cpu", "torchvision0.29"]);
  expect(textOf(host)).toContain("2 of 3 packages");
});
