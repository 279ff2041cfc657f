import { afterEach, beforeEach, expect, test } from "vitest";
import { href, navigate, route, setQuery, start } from "./router.svelte";

let stop: () => void;
beforeEach(() => {
  stop = start();
  navigate(href(""));
});
afterEach(() => stop());

function click(html: string, more: MouseEventInit = {}): MouseEvent {
  document.body.innerHTML = html;
  const event = new MouseEvent("click", { bubbles: true, cancelable: true, button: 0, ...more });
  document.querySelector("a")?.dispatchEvent(event);
  return event;
}

test("addresses name pages", () => {
  const pages = [
    "",
    "jobs",
    "jobs/job_1",
    "sweeps",
    "sweeps/swp_1",
    "schedules",
    "compare",
    "models",
    "jobs/job_1/x",
    "sweeps/a/b",
    "x",
    "constructor",
  ].map((path) => {
    navigate(href(path));
    return route().page;
  });
  expect(pages).toEqual([
    "now",
    "jobs",
    "job",
    "sweeps",
    "sweep",
    "schedules",
    "compare",
    "models",
    ...Array(4).fill("unknown"),
  ]);
});

test("a job's address has its id and its query", () => {
  navigate(href("jobs/job_1", { x: "time", q: "a b" }));
  expect(route()).toMatchObject({ page: "job", id: "job_1" });
  expect(route().query.get("q")).toBe("a b");
});

test("the query changes in place, and an empty value leaves it", () => {
  navigate(href("jobs", { q: "digits", sort: "name" }));
  const length = history.length;
  setQuery({ q: "", state: "running" });
  expect(location.search).toBe("?sort=name&state=running");
  expect(history.length).toBe(length);
});

test("a click on a link within the page does not load it anew", () => {
  expect(click(`<a href="${href("jobs")}">Jobs</a>`).defaultPrevented).toBe(true);
  expect(route().page).toBe("jobs");
});

test("downloads, other windows, other sites and anchors are left to the browser", () => {
  const left = [
    click(`<a href="${href("jobs")}" download>x</a>`),
    click(`<a href="${href("jobs")}">x</a>`, { ctrlKey: true }),
    click(`<a href="${href("v1/jobs/a/logs/download")}">x</a>`),
    click('<a href="https://example.org/">x</a>'),
    click('<a href="#main">x</a>'),
  ];
  expect(left.map((event) => event.defaultPrevented)).toEqual(left.map(() => false));
});
