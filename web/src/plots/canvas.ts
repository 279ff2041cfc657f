/** A canvas that fills its element at the display's own resolution, and is painted anew when that or the theme changes. */
import type { Attachment } from "svelte/attachments";
import { onTheme } from "../charts/theme";

export interface Size {
  readonly width: number;
  readonly height: number;
}

/** Tells the canvas's context and size at first and after each change of size or theme. */
export function painted(
  paint: (ctx: CanvasRenderingContext2D, size: Size) => void,
): Attachment<HTMLCanvasElement> {
  return (canvas) => {
    let frame = 0;
    const draw = (): void => {
      frame = 0;
      const { clientWidth: width, clientHeight: height } = canvas;
      const ratio = window.devicePixelRatio || 1;
      const ctx = canvas.getContext("2d");
      if (!ctx || width === 0 || height === 0) return;
      const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
      if (canvas.width !== across) canvas.width = across;
      if (canvas.height !== down) canvas.height = down;
      ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
      paint(ctx, { width, height });
    };
    const soon = (): void => {
      frame ||= requestAnimationFrame(draw);
    };
    const sizes = new ResizeObserver(soon);
    sizes.observe(canvas);
    const stop = onTheme(soon);
    soon();
    return () => {
      cancelAnimationFrame(frame);
      sizes.disconnect();
      stop();
    };
  };
}
