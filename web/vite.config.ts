import { svelte } from "@sveltejs/vite-plugin-svelte";
import { readFileSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

/** `npm run dev` forwards the API to this running service, so that its cookie and its origin are the page's own. */
const service = process.env["TORCHYARD_URL"] ?? running() ?? "http://127.0.0.1:8000";

/** Returns the address of the service that `torchyard up` runs here. */
function running(): string | null {
  try {
    return (JSON.parse(readFileSync("../.torchyard/server.json", "utf-8")) as { url: string }).url;
  } catch {
    return null;
  }
}

/** Takes the browser's language from uPlot: it fails as it is loaded where that is no valid tag, such as `en-US@posix`. */
const uplotSpeaksEnglish: Plugin = {
  name: "uplot-speaks-english",
  transform(code, id) {
    if (!/\/uplot\/dist\/uPlot\.esm\.js$/.test(id)) return null;
    if (!code.includes("nav.language"))
      this.error("uPlot no longer reads nav.language: take this plugin out");
    return { code: code.replaceAll("nav.language", '"en"'), map: null };
  },
};

export default defineConfig({
  plugins: [svelte(), uplotSpeaksEnglish],
  base: "./", // the page works below any path
  build: {
    outDir: "../api/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    target: "es2022",
    sourcemap: false,
    rolldownOptions: {
      checks: { pluginTimings: false },
      output: {
        codeSplitting: {
          groups: [
            // In a file of its own, browsers keep it when our code changes.
            { name: "uplot", test: /node_modules\/uplot\/.*js$/, priority: 4 },
            { name: "start", tags: ["$initial"], priority: 3 },
            // A request for each small module would cost more than the bytes of which a page has no use.
            { name: "shared", test: /\/src\//, minShareCount: 5, maxModuleSize: 1500, priority: 2 },
            { name: "signs", test: /\/src\/(signs|live|start)\//, minShareCount: 2, priority: 1 },
            { name: "text", test: /\/src\/text\//, minShareCount: 2 },
          ],
        },
      },
    },
  },
  worker: { format: "es" },
  server: {
    proxy: { "/v1": { target: service, changeOrigin: true, headers: { origin: service } }, "/docs": service },
  },
});
