/** Whether each call of the page is one that the service has: a wrong path would show when somebody clicks. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const SOURCE = join(import.meta.dirname, "..");
const DOCUMENT = join(SOURCE, "../openapi.json");
/** A call with its path, which is written out: `get<…>("v1/jobs")` or a template. */
const CALL = /\b(get|getFile|post|put)(?:<[^(]*?>)?\(\s*(["`])(v1\/.*?)\2\s*(?=[,)])([^;]*)/g;
const METHOD = /"(PATCH|PUT|DELETE)"/;

interface Call {
  readonly method: string;
  readonly path: string;
}

const { paths } = JSON.parse(readFileSync(DOCUMENT, "utf8")) as {
  paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
};

/** Returns the calls of a source, with `{}` where an id stands. */
function callsIn(source: string): readonly Call[] {
  return [...source.matchAll(CALL)].map(([, name, , path = "", rest = ""]) => ({
    method:
      name === "post" ? (METHOD.exec(rest)?.[1] ?? "POST").toLowerCase() : name === "put" ? "put" : "get",
    path: `/${path.replace(/\?.*/, "").replace(/\$\{[^}]*\}/g, "{}")}`,
  }));
}

function isServed({ method, path }: Call): boolean {
  if (path === "/v1/{}") return true; // the list is a parameter of the function
  const served = Object.entries(paths).find(([known]) => known.replace(/\{[^}]*\}/g, "{}") === path);
  return served !== undefined && method in served[1];
}

test("each path that the page asks for is one of the service, with its method", () => {
  const files = readdirSync(SOURCE, { recursive: true, encoding: "utf8" }).filter(
    (name) => /\.(ts|svelte)$/.test(name) && !/(\.test|\.d|testing)\.ts$/.test(name),
  );
  const calls = files.flatMap((name) =>
    callsIn(readFileSync(join(SOURCE, name), "utf8")).map((call) => ({ name, ...call })),
  );
  expect(calls.length).toBeGreaterThan(60);
  expect(calls.filter((call) => !isServed(call))).toEqual([]);
});

test("a path or a method that the service has not is found", () => {
  const source =
    'get<A>("v1/jobz"); post(`v1/jobs/${id}/star`, body, "DELETE"); post("v1/jobs", x, "PUT"); put<C>("v1/bundles", x);';
  expect(callsIn(source).map(isServed)).toEqual([false, true, false, false]);
});
