import { defineConfig, mergeConfig } from "vitest/config";
import page from "./vite.config.ts";

export default mergeConfig(
  page,
  defineConfig({
    resolve: { conditions: ["browser"] },
    test: {
      environment: "happy-dom",
      isolate: false,
      maxWorkers: 1, // each loads and transforms the sources again, which takes longer than the tests
      include: ["src/**/*.test.ts"],
      testTimeout: 60_000, // finds what hangs, not what is slow beside other work
    },
  }),
);
