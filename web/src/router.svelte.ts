/** The page's address: a path below the page's folder, and the query, which holds the whole view. */
import { BASE } from "./base";
import { Scrolling } from "./scrolling";
import { PAGES, PAGES_OF_ONE, type PageName } from "./sitemap";

const BY_PATH = new Map(PAGES.map(({ path, name }) => [path, name]));
const BY_PATH_OF_ONE: ReadonlyMap<string, PageName> = new Map(Object.entries(PAGES_OF_ONE));

export interface Route {
  readonly page: PageName | "unknown";
  /** Of the thing that the page shows. */
  readonly id: string | null;
  readonly query: URLSearchParams;
}

const ROOT = BASE.pathname;
/** What lies there is answered by the service, not by the page. */
const NO_PAGES = [`${ROOT}v1/`, `${ROOT}docs/`];

let current = $state.raw(read());
const scrolling = new Scrolling();

/** Returns the route that is shown. Reactive. */
export function route(): Route {
  return current;
}

/** Returns the address of a page such as `jobs/job_…`, with a query. */
export function href(path: string, query: Readonly<Record<string, string>> | URLSearchParams = {}): string {
  const text = new URLSearchParams(query as Record<string, string>).toString();
  return ROOT + path + (text ? `?${text}` : "");
}

/** Shows the page at `to`, an answer of `href`. */
export function navigate(to: string): void {
  history.pushState(scrolling.begin(), "", to);
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
  history.replaceState(history.state, "", location.pathname + (text ? `?${text}` : "") + location.hash);
  current = read();
}

/** Follows the browser's buttons, and clicks on links within the page. Returns how to stop. */
export function start(): () => void {
  const popped = (): void => {
    current = read();
    scrolling.goTo(history.state);
  };
  const stopScrolling = scrolling.start();
  window.addEventListener("popstate", popped);
  document.addEventListener("click", clicked);
  return () => {
    stopScrolling();
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
  if (!link.pathname.startsWith(ROOT) || NO_PAGES.some((path) => link.pathname.startsWith(path))) return;
  const isWithin = link.hash !== "" && link.pathname === location.pathname && link.search === location.search;
  if (isWithin) return;
  event.preventDefault();
  navigate(link.href);
}

function read(): Route {
  const query = new URLSearchParams(location.search);
  const [first = "", id = null, ...rest] = location.pathname.slice(ROOT.length).split("/").filter(Boolean);
  const page = rest.length === 0 ? (id === null ? BY_PATH : BY_PATH_OF_ONE).get(first) : undefined;
  return { page: page ?? "unknown", id, query };
}
