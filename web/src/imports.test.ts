import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { expect, test } from "vitest";

const SOURCE = join(import.meta.dirname, ".");
const NAMED = /(?:\bfrom|\bimport)\s*\(?\s*(["'])(\.[^"']*)\1/g;

type Graph = Map<string, Set<string>>;

const files = readdirSync(SOURCE, { recursive: true, encoding: "utf8" }).filter(
  (name) => /\.(ts|svelte)$/.test(name) && !/(\.test|\.d|testing)\.ts$/.test(name),
);

test("no modules and no folders import each other in a circle", () => {
  expect(files.length).toBeGreaterThan(100);
  const imported = new Map(files.map((name) => [name, importsOf(name)]));
  const folders = new Set([".", ...files.flatMap(foldersOf)]);
  const found = [...folders].map((folder) => [folder, circles(childrenImported(folder, imported))] as const);
  expect(found.filter(([, circle]) => circle.length > 0)).toEqual([]);
});

test("a circle is found over any number of modules, and an import in each of its forms", () => {
  const graph = new Map([
    ["a", new Set(["b"])],
    ["b", new Set(["c"])],
    ["c", new Set(["a", "d"])],
    ["d", new Set<string>()],
  ]);
  expect(circles(graph)).toEqual(["a", "b", "c"]);
  const source = `import { a } from "./a"; import type { B } from './b'; import "./c"; () => import("./d"); export * from "./e";`;
  expect(namesIn(source)).toEqual(["./a", "./b", "./c", "./d", "./e"]);
});

function namesIn(source: string): string[] {
  return [...source.matchAll(NAMED)].map((found) => found[2] ?? "");
}

/** Returns the files of ours that a file imports, lazily or for its types too. */
function importsOf(name: string): string[] {
  const source = readFileSync(join(SOURCE, name), "utf8");
  const paths = namesIn(source).map((path) => normalize(join(dirname(name), path)));
  return paths.flatMap((path) => [path, `${path}.ts`].filter((candidate) => files.includes(candidate)));
}

function foldersOf(name: string): string[] {
  const parts = dirname(name).split("/");
  return parts[0] === "." ? [] : parts.map((_, end) => parts.slice(0, end + 1).join("/"));
}

/** Returns the modules and folders directly in a folder, each with those of them that it imports. */
function childrenImported(folder: string, imported: Map<string, string[]>): Graph {
  const start = folder === "." ? "" : `${folder}/`;
  const child = (name: string): string => name.slice(start.length).split("/")[0] ?? "";
  const graph: Graph = new Map();
  for (const [name, others] of imported) {
    if (!name.startsWith(start)) continue;
    const found = graph.get(child(name)) ?? new Set();
    for (const other of others)
      if (other.startsWith(start) && child(other) !== child(name)) found.add(child(other));
    graph.set(child(name), found);
  }
  return graph;
}

/** Returns the nodes that lead to themselves. */
function circles(graph: Graph): string[] {
  return [...graph.keys()].filter((node) => reached(graph, node).has(node)).sort();
}

function reached(graph: Graph, start: string): Set<string> {
  const found = new Set<string>();
  const left = [...(graph.get(start) ?? [])];
  for (let node = left.pop(); node !== undefined; node = left.pop()) {
    if (found.has(node)) continue;
    found.add(node);
    left.push(...(graph.get(node) ?? []));
  }
  return found;
}
