/** The page's address: a path below the page's folder, and the query, which holds the whole view. */
import { BASE } from "./base";

export interface Route {
  readonly page:
    "now" | "jobs" | "job" | "sweeps" | "sweep" | "schedules" | "compare" | "models" | "settings" | "unknown";
  readonly jobId: string | null;
  readonly sweepId: string | null;
  readonly query: URLSearchParams;
}

const ROOT = BASE.pathname;

let current = $state.raw(read());

/** Returns the route that is shown. Reactive. */
export function route(): Route {
  return current;
}

/** Returns the address of a page such as `jobs/job_…`, with a query. */
export function href(path: string, query: Readonly<Record<string, string>> = {}): string {
  const text = new URLSearchParams(query).toString();
  return ROOT + path + (text ? `?${text}` : "");
}

/** Shows the page at `to`, an answer of `href`. */
export function navigate(to: string): void {
  history.pushState(null, "", to);
  current = read();
  window.scrollTo(0, 0);
}

/** Changes keys of the query in place, so that the address holds the view. An empty value removes its key. */
export function setQuery(changes: Readonly<Record<string, string | null>>): void {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(key);
    else query.set(key, value);
  }
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : "") + location.hash);
  current = read();
}

/** Follows the browser's buttons, and clicks on links within the page. Returns how to stop. */
export function start(): () => void {
  const popped = (): void => {
    current = read();
  };
  window.addEventListener("popstate", popped);
  document.addEventListener("click", clicked);
  return () => {
    window.removeEventListener("popstate", popped);
    document.removeEventListener("click", clicked);
  };
}

function clicked(event: MouseEvent): void {
  if (
    event.defaultPrevented ||
    event.button !== 0 ||
    event.metaKey ||
    event.ctrlKey ||
    event.shiftKey ||
    event.altKey
  )
    return;
  const link = (event.target as Element | null)?.closest("a");
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (!link.pathname.startsWith(ROOT) || link.pathname.startsWith(`${ROOT}v1/`)) return;
  const isWithin = link.hash !== "" && link.pathname === location.pathname && link.search === location.search;
  if (isWithin) return;
  event.preventDefault();
  navigate(link.href);
}

function read(): Route {
  const query = new URLSearchParams(location.search);
  const [first, second, ...rest] = location.pathname.slice(ROOT.length).split("/").filter(Boolean);
  const plain = { jobId: null, sweepId: null, query };
  if (first === undefined) return { page: "now", ...plain };
  if (first === "jobs" && second === undefined) return { page: "jobs", ...plain };
  if (first === "jobs" && second !== undefined && rest.length === 0)
    return { page: "job", ...plain, jobId: second };
  if (first === "sweeps" && second === undefined) return { page: "sweeps", ...plain };
  if (first === "sweeps" && second !== undefined && rest.length === 0)
    return { page: "sweep", ...plain, sweepId: second };
  if (first === "schedules" && second === undefined) return { page: "schedules", ...plain };
  if (first === "compare" && second === undefined) return { page: "compare", ...plain };
  if (first === "models" && second === undefined) return { page: "models", ...plain };
  if (first === "settings" && second === undefined) return { page: "settings", ...plain };
  return { page: "unknown", ...plain };
}
