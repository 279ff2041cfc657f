/** Starts the Chromium of the lock, headless. It needs no root and nothing that the system has installed. */
import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chromium as playwright, type Browser } from "playwright-core";

// It is unpacked to the temporary folder, once: so that folder is one of ours, which stays.
const folder = fileURLToPath(new URL("../node_modules/.cache/browser", import.meta.url));

const START_MS = 300_000; // finds what hangs, not what is slow beside other work

/** `names` are answered by this machine. */
export async function launch(
  names: readonly string[] = [],
  { hidesScrollbars = true }: { readonly hidesScrollbars?: boolean } = {},
): Promise<Browser> {
  mkdirSync(folder, { recursive: true });
  process.env["TMPDIR"] = folder;
  const { default: chromium } = await import("@sparticuz/chromium");
  return playwright.launch({
    executablePath: await chromium.executablePath(),
    // Not the package's own arguments: they are for cloud functions, and switch the browser's security off.
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--force-color-profile=srgb",
      `--host-resolver-rules=${names.map((name) => `MAP ${name} 127.0.0.1`).join(",")}`,
    ],
    ignoreDefaultArgs: hidesScrollbars ? [] : ["--hide-scrollbars"],
    headless: true,
    timeout: START_MS,
  });
}
