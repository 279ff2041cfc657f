import { afterEach, expect, test, vi } from "vitest";
import { view } from "./testing";
import { click, removeAll, serve, settled, show, signIn, textOf } from "../../testing";
import Reaching from "./Reaching.svelte";

const URL_ = "http://x.localhost:8000/.torchyard/open?ticket=t";

afterEach(async () => {
  vi.unstubAllGlobals();
  await removeAll();
});

function panel(isAvailable: boolean): HTMLElement {
  serve(({ method, path }) => {
    if (!path.endsWith("/origins")) return null;
    return method === "GET"
      ? { is_available: isAvailable }
      : { url: URL_, expires_at: "2026-01-01T00:00:00Z" };
  });
  return show(Reaching, { job: view({ state: "running" }), close: () => undefined });
}

test("a terminal opens in another tab, which cannot lead this page elsewhere", async () => {
  signIn("member", "jobs:write", "jobs:exec");
  const tab = { opener: window };
  const open = vi.fn(() => tab as unknown as Window | null);
  vi.stubGlobal("open", open);
  const host = panel(true);
  await settled();
  expect(open).toHaveBeenCalledWith(URL_, "_blank");
  expect(tab.opener).toBeNull();
  expect(textOf(host)).toContain("The terminal is in another tab.");
  open.mockReturnValue(null);
  click(host, "Open another");
  await settled();
  const link = host.querySelector<HTMLAnchorElement>("a");
  expect(link?.href).toBe(URL_);
  expect(link?.rel).toBe("noopener noreferrer");
});

test.each([
  ["where there are no host names for jobs", ["jobs:write", "jobs:exec"], "cannot show terminals"],
  ["in a session that was not opened for that", ["jobs:write"], "may not open terminals"],
] as const)("the command line stands there %s", async (_, scopes, words) => {
  signIn("member", ...scopes);
  const open = vi.fn();
  vi.stubGlobal("open", open);
  const host = panel(false);
  await settled();
  expect(open).not.toHaveBeenCalled();
  expect(textOf(host)).toContain(words);
  expect(textOf(host.querySelector("code"))).toMatch(/^torchyard shell job_/);
});
