import { flushSync } from "svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { live } from "../live/live.svelte";
import { href, navigate } from "../router.svelte";
import { click, eventually, removeAll, serve, settled, show, signIn, textOf, textsOf } from "../testing";
import Header from "./Header.svelte";
import Mark from "./Mark.svelte";
import { session } from "./session.svelte";
import Shell from "./Shell.svelte";

beforeEach(() => {
  live.status = "connecting"; // whatever the file before has left: they share a document
});

afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  navigate(href(""));
});

/** Shows the shell, whose pages count how often each is loaded. */
function shell(
  load: (name: string) => Promise<{ default: typeof Mark }> = () => Promise.resolve({ default: Mark }),
) {
  vi.spyOn(live, "start").mockReturnValue();
  vi.spyOn(live, "stop").mockReturnValue();
  vi.stubGlobal("scrollTo", () => undefined);
  const loaded: string[] = [];
  const page = (name: string) => () => (loaded.push(name), load(name));
  const pages = {
    now: page("now"),
    jobs: page("jobs"),
    job: page("job"),
    sweeps: page("sweeps"),
    sweep: page("sweep"),
    schedules: page("schedules"),
    compare: page("compare"),
    models: page("models"),
    settings: page("settings"),
    submit: page("submit"),
    workers: page("workers"),
    worker: page("worker"),
  };
  return { host: show(Shell, { pages }), loaded };
}

test("the header marks the page that is shown, and says how the page hears of changes", () => {
  signIn("member", "jobs:read");
  navigate(href("jobs/job_0197f3c2a9b47c1e8d20f6b1c4e5a703"));
  const calls: string[] = [];
  const host = show(Header, { openPalette: () => calls.push("palette"), openHelp: () => calls.push("help") });
  expect(textsOf(host, "header > nav [aria-current=page]")).toEqual(["Jobs"]);
  const status = (): string => (flushSync(), textOf(host.querySelector("[role=status]")));
  expect(status()).toBe("");
  const leave = live.watch({ topics: ["jobs"] }, () => undefined);
  expect(status()).toBe("connecting");
  leave();
  live.status = "polling";
  expect(status()).toBe("every 5 s");
  click(host, "Keys ?");
  host.querySelector<HTMLElement>(".palette")?.click();
  expect(calls).toEqual(["help", "palette"]);
});

test("the menu closes by Escape, by a press beside it, and once a link of it is followed", () => {
  signIn("member", "jobs:read");
  vi.stubGlobal("scrollTo", () => undefined);
  const host = show(Header, { openPalette: () => undefined, openHelp: () => undefined });
  const menu = host.querySelector("details");
  if (!menu) throw new Error("no menu");
  const leaves = [
    () => window.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" })),
    () => host.querySelector("header")?.dispatchEvent(new Event("pointerdown", { bubbles: true })),
    () => navigate(href("models")),
  ];
  for (const leave of leaves) {
    menu.open = true;
    leave();
    flushSync();
    expect(menu.open).toBe(false);
  }
});

test("who cannot be signed out reads why", async () => {
  signIn("member", "jobs:read");
  serve(() => null);
  const host = show(Header, { openPalette: () => undefined, openHelp: () => undefined });
  click(host, "Sign out");
  await settled();
  await eventually(() => expect(textOf(host.querySelector("[role=alert]"))).toBe("There is none."));
  expect(session.stage).toBe("in");
});

test("a page that is left keeps its id until the next one is there", async () => {
  signIn("member", "jobs:read");
  const seen: string[] = [];
  const noting = (name: string): typeof Mark =>
    ((_: unknown, props: { id: string }) => void seen.push(`${name} ${props.id}`)) as unknown as typeof Mark;
  shell((name) => Promise.resolve({ default: noting(name) }));
  await settled();
  for (const path of ["jobs/job_1", "jobs/job_2", "jobs"]) {
    navigate(href(path));
    flushSync();
    await settled();
  }
  expect(seen).toEqual(["now ", "job job_1", "job job_2", "jobs "]);
});

test("the shell loads the page of the address, and a page again only for another one", async () => {
  signIn("member", "jobs:read");
  const { host, loaded } = shell();
  await settled();
  navigate(href("jobs"));
  flushSync();
  navigate(href("jobs", { state: "failed" }));
  flushSync();
  await settled();
  expect(loaded).toEqual(["now", "jobs"]);
  expect(host.querySelector("#main svg")).not.toBeNull();
});

test("an address without a page says where to look", async () => {
  signIn("member", "jobs:read");
  navigate(href("nowhere"));
  const { host, loaded } = shell();
  await settled();
  expect([textOf(host.querySelector("h1")), loaded]).toEqual(["No such page", []]);
});

test("who signs in with a token that opens no page reads so", async () => {
  signIn("member");
  const { host } = shell();
  await settled();
  expect(textOf(host.querySelector("h1"))).toBe("This token opens no page");
});

test("a page whose files are gone offers to load all again", async () => {
  signIn("member", "jobs:read");
  const { host } = shell(() => Promise.reject(new Error("gone")));
  await settled();
  expect(textOf(host.querySelector("#main p"))).toContain("did not load");
});

test("keys go to pages, and list themselves", async () => {
  signIn("member", "jobs:read");
  const { host } = shell();
  await settled();
  const press = (key: string): void => {
    window.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    flushSync();
  };
  press("g");
  press("j");
  expect(location.pathname).toBe("/jobs");
  press("?");
  expect(host.querySelectorAll("dialog")).toHaveLength(1);
  expect(textOf(host.querySelector("dialog"))).toContain("Go to Jobs");
});
