import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

/** `npm run dev` forwards the API to this running service, so that its cookie and its origin are the page's own. */
const service = process.env["TORCHYARD_URL"] ?? "http://127.0.0.1:8000";

export default defineConfig({
  plugins: [svelte()],
  base: "./", // the page works below any path
  build: {
    outDir: "../api/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    target: "es2022",
    sourcemap: false,
  },
  worker: { format: "es" },
  server: { proxy: { "/v1": { target: service, changeOrigin: true, headers: { origin: service } } } },
  resolve: process.env["VITEST"] ? { conditions: ["browser"] } : {},
  test: { environment: "happy-dom", include: ["src/**/*.test.ts"] },
});
