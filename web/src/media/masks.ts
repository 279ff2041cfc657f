/** Masks of classes, and the pixels that are drawn over a picture for them. */
export interface Mask {
  readonly width: number;
  readonly height: number;
  /** The class of each pixel, by rows. */
  readonly classes: Uint8Array;
}

export type Colour = readonly [red: number, green: number, blue: number];
export type Mode = "errors" | "truth" | "predicted";
/** What a pixel is, of one class or of all: found, missed, false, or another class than the true one. */
export const OUTCOMES = ["found", "missed", "false", "other"] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** Pixels of this class count nowhere. */
export const IGNORED = 255;
/** The alpha between the stripes of a pattern, and of what is right: what is wrong draws the eye. */
const [WEAK, EVEN] = [110, 170];

type Pixels = Uint8ClampedArray<ArrayBuffer>;

/** Which classes are told apart. */
export interface Focus {
  /** The only class that counts; null for all. */
  readonly focus: number | null;
  /** Class 0 stands for all that is no class. */
  readonly hasBackground: boolean;
}

/** Returns the outcome of a pixel; null where there is nothing to say. */
export function outcomeOf(truth: number, predicted: number, { focus, hasBackground }: Focus): Outcome | null {
  if (truth === IGNORED) return null;
  const counts = (index: number): boolean => (focus === null ? index > 0 || !hasBackground : index === focus);
  const [is, taken] = [counts(truth), counts(predicted)];
  if (is && taken) return truth === predicted ? "found" : "other";
  return is ? "missed" : taken ? "false" : null;
}

/** Returns how many pixels have each outcome. */
export function counted(truth: Mask, predicted: Mask, focus: Focus): Record<Outcome, number> {
  const found = { found: 0, missed: 0, false: 0, other: 0 };
  for (let i = 0; i < truth.classes.length; i++) {
    const outcome = outcomeOf(truth.classes[i] ?? IGNORED, predicted.classes[i] ?? IGNORED, focus);
    if (outcome) found[outcome] += 1;
  }
  return found;
}

/** Returns the intersection over the union; null without any pixel. */
export function iou(counts: Readonly<Record<Outcome, number>>): number | null {
  const either = counts.found + counts.missed + counts.false + counts.other;
  return either > 0 ? counts.found / either : null;
}

/** Returns RGBA pixels of where truth and prediction agree or not. Each outcome has a pattern, as not all see its colour. */
export function paintErrors(
  truth: Mask,
  predicted: Mask,
  focus: Focus,
  colours: Readonly<Record<Outcome, Colour>>,
): Pixels {
  const stripe = Math.max(2, Math.round(Math.max(truth.width, truth.height) / 96));
  return paint(truth, (i, x, y) => {
    const outcome = outcomeOf(truth.classes[i] ?? IGNORED, predicted.classes[i] ?? IGNORED, focus);
    return outcome === null ? 0 : packed(colours[outcome], alphaOf(outcome, x, y, stripe));
  });
}

/** Returns RGBA pixels of the classes of a mask. Of all classes, the background is not drawn unless it is a class of its own. */
export function paintClasses(
  mask: Mask,
  { focus, hasBackground }: Focus,
  colourOf: (index: number) => Colour,
): Pixels {
  const colours = Array.from({ length: IGNORED }, (_, index) =>
    (focus === null ? index > 0 || !hasBackground : index === focus) ? packed(colourOf(index), 255) : 0,
  );
  return paint(mask, (i) => colours[mask.classes[i] ?? IGNORED] ?? 0);
}

/** Returns whether class 0 stands for all that is no class: in masks of one class, and where its name says so. */
export function isFirstBackground(classes: readonly string[] | null): boolean {
  const first = classes?.[0]?.toLowerCase();
  return first === undefined || classes?.length === 1 || ["background", "none", "void", "0"].includes(first);
}

/** Even for what is found; stripes to the right for what is false, to the left for what is missed, squares for another class. */
function alphaOf(outcome: Outcome, x: number, y: number, stripe: number): number {
  if (outcome === "found") return EVEN;
  const [right, left] = [((x + y) / stripe) & 1, ((x - y + (1 << 20)) / stripe) & 1];
  const isStrong = outcome === "false" ? right === 0 : outcome === "missed" ? left === 0 : right === left;
  return isStrong ? 255 : WEAK;
}

function paint({ width, height }: Mask, pixel: (i: number, x: number, y: number) => number): Pixels {
  const drawn = new Uint32Array(width * height);
  for (let y = 0, i = 0; y < height; y++) for (let x = 0; x < width; x++, i++) drawn[i] = pixel(i, x, y);
  return new Uint8ClampedArray(drawn.buffer);
}

/** Returns a pixel as canvases store it. */
function packed([red, green, blue]: Colour, alpha: number): number {
  return ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
