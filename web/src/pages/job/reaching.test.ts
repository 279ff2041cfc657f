import { afterEach, expect, test, vi } from "vitest";
import { view } from "./testing";
import { changesOf, click, removeAll, serve, settled, show, signIn, textOf, type Asked } from "../../testing";
import Reaching from "./Reaching.svelte";

const URL_ = "http://x.localhost:8000/.torchyard/open?ticket=t";

let host: HTMLElement;

afterEach(async () => {
  vi.unstubAllGlobals();
  await removeAll();
});

function panel(isAvailable: boolean, wanted: "terminal" | "port" = "terminal"): readonly Asked[] {
  const asked = serve(({ method, path }) => {
    if (!path.endsWith("/origins")) return null;
    return method === "GET"
      ? { is_available: isAvailable }
      : { url: URL_, expires_at: "2026-01-01T00:00:00Z" };
  });
  host = show(Reaching, { job: view({ state: "running" }), wanted, close: () => undefined });
  return asked;
}

test("a terminal opens in another tab, which cannot lead this page elsewhere", async () => {
  signIn("member", "jobs:write", "jobs:exec");
  const tab = { opener: window };
  const open = vi.fn(() => tab as unknown as Window | null);
  vi.stubGlobal("open", open);
  panel(true);
  await settled();
  expect(open).toHaveBeenCalledWith(URL_, "_blank");
  expect(tab.opener).toBeNull();
  expect(textOf(host)).toContain("Opened in another tab.");
  open.mockReturnValue(null);
  click(host, "Open another");
  await settled();
  const link = host.querySelector<HTMLAnchorElement>("a");
  expect(link?.href).toBe(URL_);
  expect(link?.rel).toBe("noopener noreferrer");
});

test("a port is asked for, and stands in the command, too", async () => {
  signIn("member", "jobs:write", "jobs:exec");
  vi.stubGlobal(
    "open",
    vi.fn(() => ({}) as Window),
  );
  const asked = panel(true, "port");
  await settled();
  expect(changesOf(asked)).toEqual([]);
  const field = host.querySelector("input");
  if (field) field.value = "6006";
  field?.dispatchEvent(new Event("input", { bubbles: true }));
  host.querySelector("form")?.dispatchEvent(new SubmitEvent("submit", { cancelable: true }));
  await settled();
  expect(changesOf(asked).map(({ body }) => body)).toEqual([{ port: 6006 }]);
  expect(textOf(host.querySelector("code"))).toMatch(/^torchyard forward job_\S+ 6006$/);
});

test.each([
  ["where there are no host names for jobs", ["jobs:write", "jobs:exec"], "cannot show terminals"],
  ["in a session that was not opened for that", ["jobs:write"], "cannot open terminals"],
] as const)("the command line stands there %s", async (_, scopes, words) => {
  signIn("member", ...scopes);
  const open = vi.fn();
  vi.stubGlobal("open", open);
  panel(false);
  await settled();
  expect(open).not.toHaveBeenCalled();
  expect(textOf(host)).toContain(words);
  expect(textOf(host.querySelector("code"))).toMatch(/^torchyard shell job_/);
});
