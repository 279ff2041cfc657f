/** A chart as a picture with its title and legend, and how a browser saves what the page made. */
import { number } from "../text/number";
import type { Line } from "./line";
import { theme } from "./theme";

const PAD = 16;
const TITLE = 28;
const ROW = 18;

/** Returns a PNG of the plot's canvas on the theme's background. */
export async function pictureOf(
  title: string,
  lines: readonly Line[],
  plot: HTMLCanvasElement,
): Promise<Blob | null> {
  const ratio = devicePixelRatio;
  const columns = Math.max(1, Math.floor(plot.width / ratio / 240));
  const rows = Math.ceil(lines.length / columns);
  const canvas = document.createElement("canvas");
  canvas.width = plot.width + 2 * PAD * ratio;
  canvas.height = plot.height + (2 * PAD + TITLE + rows * ROW) * ratio;
  const ctx = canvas.getContext("2d");
  if (!ctx) return null;
  ctx.fillStyle = theme().bg;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.drawImage(plot, PAD * ratio, (PAD + TITLE) * ratio);
  ctx.scale(ratio, ratio);
  ctx.textBaseline = "top";
  ctx.fillStyle = theme().ink;
  ctx.font = `600 15px ${theme().signFont}`;
  ctx.fillText(title, PAD, PAD);
  const width = plot.width / ratio / columns;
  const top = PAD + TITLE + plot.height / ratio + PAD / 2;
  for (const [i, line] of lines.entries())
    paintLegend(ctx, line, PAD + (i % columns) * width, top + Math.floor(i / columns) * ROW, width);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

/** Lets the browser save a file. */
export function save(name: string, blob: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function paintLegend(
  ctx: CanvasRenderingContext2D,
  line: Line,
  left: number,
  top: number,
  width: number,
): void {
  ctx.strokeStyle = theme().series[line.colour.slot - 1] ?? theme().ink;
  ctx.lineWidth = 2;
  ctx.globalAlpha = line.colour.isPale ? 0.65 : 1;
  ctx.setLineDash([...line.colour.dash]);
  ctx.beginPath();
  ctx.moveTo(left, top + 7);
  ctx.lineTo(left + 18, top + 7);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.globalAlpha = 1;
  ctx.fillStyle = theme().muted;
  ctx.font = `12px ${theme().bodyFont}`;
  ctx.fillText(`${line.name}  ${number(line.last())}`, left + 24, top, width - 32);
}
