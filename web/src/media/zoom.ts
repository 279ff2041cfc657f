/** How a picture is laid over its place: scaled, then moved. At scale 1 it fills the place. */
export interface Zoom {
  readonly scale: number;
  /** In pixels of the screen, from the place's middle. */
  readonly x: number;
  readonly y: number;
}

export interface Size {
  readonly width: number;
  readonly height: number;
}

export const FITTED: Zoom = { scale: 1, x: 0, y: 0 };
const MOST = 40;

/** Returns the zoom by a factor that keeps the point (from the place's middle) where it is. */
export function zoomed(zoom: Zoom, factor: number, point: { x: number; y: number }, place: Size): Zoom {
  const scale = Math.max(1, Math.min(zoom.scale * factor, MOST));
  const grown = scale / zoom.scale;
  const moved = { scale, x: point.x - (point.x - zoom.x) * grown, y: point.y - (point.y - zoom.y) * grown };
  return kept(moved, place);
}

/** Returns the zoom moved, never beyond the picture's edges. */
export function moved(zoom: Zoom, x: number, y: number, place: Size): Zoom {
  return kept({ scale: zoom.scale, x: zoom.x + x, y: zoom.y + y }, place);
}

function kept({ scale, x, y }: Zoom, { width, height }: Size): Zoom {
  const [most, highest] = [((scale - 1) * width) / 2, ((scale - 1) * height) / 2];
  return {
    scale,
    x: Math.max(-most, Math.min(x, most)) || 0,
    y: Math.max(-highest, Math.min(y, highest)) || 0,
  };
}
