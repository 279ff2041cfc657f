/** Decodes masks, in the browser alone: a part of a file is never a document. */
import type { Mask } from "./masks";

/** Returns the mask of a picture of class numbers, at the given size. Throws where the browser cannot read it. */
export async function readMask(blob: Blob, width: number, height: number): Promise<Mask> {
  const bitmap = await createImageBitmap(blob, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (!context) throw new Error("The browser cannot draw pictures.");
  context.imageSmoothingEnabled = false;
  context.drawImage(bitmap, 0, 0, width, height);
  bitmap.close();
  const { data } = context.getImageData(0, 0, width, height);
  const classes = new Uint8Array(width * height);
  for (let i = 0; i < classes.length; i++) classes[i] = data[i * 4] ?? 0;
  return { width, height, classes };
}

/** Returns a size of the same shape that is not above `most` pixels on either side. */
export function within(width: number, height: number, most: number): [width: number, height: number] {
  const share = Math.min(1, most / Math.max(width, height, 1));
  return [Math.max(1, Math.round(width * share)), Math.max(1, Math.round(height * share))];
}
