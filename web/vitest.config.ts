import { defineConfig, mergeConfig } from "vitest/config";
import page from "./vite.config.ts";

export default mergeConfig(
  page,
  defineConfig({
    resolve: { conditions: ["browser"] },
    test: {
      environment: "happy-dom",
      isolate: false,
      include: ["src/**/*.test.ts"],
      testTimeout: 60_000, // finds what hangs, not what is slow beside other work
    },
  }),
);
