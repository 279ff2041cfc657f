/** Builds the page of a terminal: it lies at an origin of its own, where nothing of the other page is. */
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

const at = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  root: at("./terminal"),
  plugins: [svelte({ configFile: at("./svelte.config.js") })],
  base: "./",
  build: {
    outDir: at("../api/static/terminal"),
    emptyOutDir: true,
    assetsInlineLimit: 0,
    target: "es2022",
    sourcemap: false,
    chunkSizeWarningLimit: 700,
    rolldownOptions: { checks: { pluginTimings: false } },
  },
});
