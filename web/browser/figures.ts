/** What a chart of the page shows, read as a person or a screen reader does. */
import { readFileSync } from "node:fs";
import type { Locator, Page } from "playwright-core";

export class Figure {
  readonly page: Page;
  readonly root: Locator;

  constructor(page: Page, key: string) {
    this.page = page;
    this.root = page.locator(`figure[data-keys~="${key}"]`);
  }

  /** Waits until the curve's newest point is of this step. */
  async reaches(step: number): Promise<void> {
    const place = `at step ${step.toLocaleString("en-US")}`;
    await this.root.locator(`.host[aria-label*="${place}."], .host[aria-label*="${place},"]`).waitFor();
  }

  async summary(): Promise<string> {
    return (await this.root.locator(".host").getAttribute("aria-label")) ?? "";
  }

  /** Returns the range of the x axis. */
  async range(): Promise<readonly [number, number]> {
    const [from, to] = await Promise.all(
      ["data-from", "data-to"].map((name) => this.root.getAttribute(name)),
    );
    return [Number(from), Number(to)];
  }

  /** Moves the mouse to a place between the left (0) and the right (1) of the plot. */
  async point(share: number): Promise<void> {
    const box = await this.root.locator(".u-over").boundingBox();
    if (!box) throw new Error("the plot cannot be seen");
    await this.page.mouse.move(box.x + share * box.width, box.y + box.height / 2);
  }

  async drag(from: number, to: number): Promise<void> {
    await this.root.scrollIntoViewIfNeeded();
    await this.point(from);
    await this.page.mouse.down();
    await this.point((from + to) / 2);
    await this.point(to);
    await this.page.mouse.up();
  }

  /** Returns the step that the crosshair reads. */
  async step(): Promise<number> {
    const said = await this.root.locator(".notes", { hasText: /step [\d,]+/ }).innerText();
    return Number(/step ([\d,]+)/.exec(said)?.[1]?.replaceAll(",", ""));
  }

  /** Chooses from its menu. */
  async choose(item: string): Promise<void> {
    await this.root.getByRole("button", { name: /^Actions of/ }).click();
    await this.root.getByRole("menu").getByText(item, { exact: true }).click();
  }

  /** Returns the rows of its CSV. */
  async rows(): Promise<readonly Readonly<Record<string, string>>[]> {
    const [file] = await Promise.all([this.page.waitForEvent("download"), this.choose("Save CSV")]);
    const [head = "", ...lines] = readFileSync(await file.path(), "utf8")
      .trim()
      .split("\r\n");
    const names = head.split(",");
    return lines.map((line) => {
      const cells = line.split(",");
      return Object.fromEntries(names.map((name, i) => [name, cells[i] ?? ""]));
    });
  }

  /** Returns for each pixel row of a half of the plot, and of some above it, how many pixels have the colour of one of the tokens. */
  async coloured(tokens: readonly string[], side: "left" | "right", above = 0): Promise<readonly number[]> {
    return this.root.locator("canvas:not(.over)").evaluate(
      (canvas: HTMLCanvasElement, { tokens, side, above }) => {
        const over = canvas.parentElement?.querySelector(".u-over")?.getBoundingClientRect();
        const whole = canvas.getBoundingClientRect();
        const ctx = canvas.getContext("2d");
        if (!over || !ctx) throw new Error("there is no plot");
        const ratio = canvas.width / whole.width;
        const half = Math.floor((over.width * ratio) / 2);
        const left = Math.round((over.left - whole.left) * ratio) + (side === "right" ? half : 0);
        const height = Math.round((over.height + above) * ratio);
        const top = Math.round((over.top - above - whole.top) * ratio);
        const { data } = ctx.getImageData(left, top, half, height);
        const style = getComputedStyle(document.documentElement);
        const wanted = tokens.map((token) => {
          const hex = style.getPropertyValue(token).trim().slice(1);
          return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
        });
        const isWanted = (i: number): boolean =>
          (data[i + 3] ?? 0) > 200 &&
          wanted.some((colour) => colour.every((part, c) => Math.abs((data[i + c] ?? 0) - part) < 24));
        return Array.from({ length: height }, (_, row) => {
          let found = 0;
          for (let i = row * half * 4; i < (row + 1) * half * 4; i += 4) if (isWanted(i)) found += 1;
          return found;
        });
      },
      { tokens, side, above },
    );
  }
}
