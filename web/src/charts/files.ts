/** Files of what a chart shows. Loaded when one is asked for. */
import type { Line } from "./line";
import { pictureOf, save } from "./picture";
import { csvOf } from "./table";

export function saveCsv(title: string, lines: readonly Line[]): void {
  save(`${nameOf(title, lines)}.csv`, new Blob([csvOf(lines)], { type: "text/csv" }));
}

export async function savePicture(
  title: string,
  lines: readonly Line[],
  canvas: HTMLCanvasElement,
): Promise<void> {
  const blob = await pictureOf(title, lines, canvas);
  if (blob) save(`${nameOf(title, lines)}.png`, blob);
}

function nameOf(title: string, lines: readonly Line[]): string {
  return `${[...new Set(lines.map((line) => line.job))].slice(0, 3).join("-")}-${title}`.replace(
    /[^\w.-]+/g,
    "-",
  );
}
