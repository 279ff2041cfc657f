import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { launch } from "./chromium.ts";
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await launch();
const base = "http://127.0.0.1:8977/docs/";
const pages = (process.argv[2] ?? "README.html your-program.html operating/settings.html reference/rest.html reference/python.html search.html?q=checkpoint rest").split(" ");
for (const [name, width, scheme] of [["desk", 1440, "light"], ["dark", 1440, "dark"], ["phone", 390, "light"], ["phonedark", 390, "dark"]] as const) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme });
  const page = await context.newPage();
  page.on("console", (m) => { if (m.type() === "error") console.log("CONSOLE", page.url(), m.text()); });
  page.on("pageerror", (e) => console.log("ERR", page.url(), e.message));
  for (const path of pages) {
    await page.goto(base + path, { waitUntil: "load" });
    if (path.startsWith("search")) await page.locator("ul.search li p").first().waitFor({timeout: 60000}).catch((e) => console.log(String(e)));
    if (path === "rest") await page.locator(".opblock").first().waitFor({timeout: 60000}).catch((e) => console.log(String(e)));
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 0) console.log("SIDEWAYS", name, path, wide);
    if (name !== "phonedark") await page.screenshot({ path: `/tmp/shots/${name}-${path.replace(/\W/g, "_")}.png` });
    await page.evaluate(AXE);
    const found = await page.evaluate(async () => (await (globalThis as any).axe.run()).violations.map((v: any) => `${v.impact} ${v.id} ${v.nodes.length} ${v.nodes[0].html.slice(0, 140)} ${v.nodes[0].failureSummary}`));
    for (const f of found) console.log("AXE", name, path, f);
  }
  await context.close();
}
await browser.close();
