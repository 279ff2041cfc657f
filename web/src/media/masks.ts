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

/** The table of the newest drawing: all pictures of a page are drawn alike. */
let newest: { readonly name: string; readonly table: Uint8Array } | null = null;

type Pixels = Uint8ClampedArray<ArrayBuffer>;

/** Which classes are drawn in colours of their own. */
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
  const table = tableOf(focus);
  const counts = new Uint32Array(OUTCOMES.length + 1);
  for (let i = 0; i < truth.classes.length; i++) {
    const place = table[placeOf(truth, predicted, i)] ?? 0;
    counts[place] = (counts[place] ?? 0) + 1;
  }
  const of = (outcome: Outcome): number => counts[OUTCOMES.indexOf(outcome) + 1] ?? 0;
  return { found: of("found"), missed: of("missed"), false: of("false"), other: of("other") };
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
  const table = tableOf(focus);
  return paint(truth, (i) => {
    const place = table[placeOf(truth, predicted, i)] ?? 0;
    const outcome = place === 0 ? undefined : OUTCOMES[place - 1]; // most pixels have none
    if (outcome === undefined) return 0;
    const x = i % truth.width;
    return packed(colours[outcome], alphaOf(outcome, x, (i - x) / truth.width, stripe));
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

/** Returns the outcome of each pair of classes, as its place in OUTCOMES + 1; 0 for none. A picture has many pixels of few pairs. */
function tableOf(focus: Focus): Uint8Array {
  const name = `${focus.focus} ${focus.hasBackground}`;
  if (newest?.name === name) return newest.table;
  const table = new Uint8Array(1 << 16);
  for (let truth = 0; truth <= IGNORED; truth++)
    for (let predicted = 0; predicted <= IGNORED; predicted++) {
      const outcome = outcomeOf(truth, predicted, focus);
      if (outcome !== null) table[(truth << 8) | predicted] = OUTCOMES.indexOf(outcome) + 1;
    }
  newest = { name, table };
  return table;
}

function placeOf(truth: Mask, predicted: Mask, i: number): number {
  return ((truth.classes[i] ?? IGNORED) << 8) | (predicted.classes[i] ?? IGNORED);
}

/** Even for what is found; stripes to the right for what is false, to the left for what is missed, squares for another class. */
function alphaOf(outcome: Outcome, x: number, y: number, stripe: number): number {
  if (outcome === "found") return EVEN;
  const [right, left] = [((x + y) / stripe) & 1, ((x - y + (1 << 20)) / stripe) & 1];
  const isStrong = outcome === "false" ? right === 0 : outcome === "missed" ? left === 0 : right === left;
  return isStrong ? 255 : WEAK;
}

function paint({ width, height }: Mask, pixel: (i: number) => number): Pixels {
  const drawn = new Uint32Array(width * height);
  for (let i = 0; i < drawn.length; i++) drawn[i] = pixel(i);
  return new Uint8ClampedArray(drawn.buffer);
}

/** Returns a pixel as canvases store it. */
function packed([red, green, blue]: Colour, alpha: number): number {
  return ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
