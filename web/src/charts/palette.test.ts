// @vitest-environment node
/** The colours of series, measured: against their grounds, against each other, in grey, and for eyes without red or green. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

type Triple = readonly [number, number, number];

const TOKENS = readFileSync(join(import.meta.dirname, "../styles/tokens.css"), "utf8");
const [LIGHT = "", DARK = ""] = TOKENS.split('[data-theme="dark"]');

/** Of linear light: Machado, Oliveira and Fernandes (2009), without one kind of cones. */
const DEUTERANOPIA = [
  [0.367322, 0.860646, -0.227968],
  [0.280085, 0.672501, 0.047413],
  [-0.01182, 0.04294, 0.968881],
] as const;
const PROTANOPIA = [
  [0.152286, 1.052583, -0.204868],
  [0.114503, 0.786281, 0.099216],
  [-0.003882, -0.048116, 1.051998],
] as const;
/** To the cones and the axes of Oklab (Ottosson, 2020). */
const CONES = [
  [0.4122214708, 0.5363325363, 0.0514459929],
  [0.2119034982, 0.6806995451, 0.1073969566],
  [0.0883024619, 0.2817188376, 0.6299787005],
] as const;
const AXES = [
  [0.2104542553, 0.793617785, -0.0040720468],
  [1.9779984951, -2.428592205, 0.4505937099],
  [0.0259040371, 0.7827717662, -0.808675766],
] as const;

const times = (matrix: readonly Triple[], [a, b, c]: Triple): Triple =>
  matrix.map(([x, y, z]) => x * a + y * b + z * c) as unknown as Triple;

function linear(hex: string): Triple {
  const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
  return parts.map((part) =>
    part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4,
  ) as unknown as Triple;
}

const luminance = ([r, g, b]: Triple): number => 0.2126 * r + 0.7152 * g + 0.0722 * b;
/** L* of CIELAB: how light a colour is in grey, from 0 to 100. */
const lightness = (colour: Triple): number => {
  const y = luminance(colour);
  return y > 0.008856 ? 116 * Math.cbrt(y) - 16 : 903.3 * y;
};
const oklab = (colour: Triple): Triple =>
  times(AXES, times(CONES, colour).map((each) => Math.cbrt(Math.max(0, each))) as unknown as Triple);

function contrast(one: Triple, other: Triple): number {
  const [low = 0, high = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

function token(theme: string, name: string): Triple {
  return linear(new RegExp(`--${name}: (#[0-9a-f]{6})`).exec(theme)?.[1] ?? "");
}

const seriesOf = (theme: string): readonly Triple[] =>
  Array.from({ length: 8 }, (_, at) => token(theme, `series-${at + 1}`));

/** Returns the least distance of two colours in Oklab, as eyes see them that lack some cones. */
function least(colours: readonly Triple[], eyes: readonly Triple[] | null = null): number {
  const seen = colours.map((colour) => {
    const shown = eyes ? times(eyes, colour).map((part) => Math.min(1, Math.max(0, part))) : colour;
    return oklab(shown as unknown as Triple);
  });
  const all = seen.flatMap((one, at) => seen.slice(at + 1).map((other) => [one, other] as const));
  return Math.min(
    ...all.map(([one, other]) => Math.hypot(...one.map((part, at) => part - (other[at] ?? 0)))),
  );
}

test.each([
  ["light", LIGHT],
  ["dark", DARK],
])("eight series look different in the %s theme, in grey and without red or green, too", (_, theme) => {
  const series = seriesOf(theme);
  for (const ground of ["bg", "surface"])
    for (const colour of series) expect(contrast(colour, token(theme, ground))).toBeGreaterThanOrEqual(3);
  expect(least(series)).toBeGreaterThan(0.14);
  expect(least(series, DEUTERANOPIA)).toBeGreaterThan(0.105);
  expect(least(series, PROTANOPIA)).toBeGreaterThan(0.09);
  const greys = series.map(lightness).sort((a, b) => a - b);
  const gaps = greys.slice(1).map((grey, at) => grey - (greys[at] ?? 0));
  expect(Math.min(...gaps)).toBeGreaterThan(4.5);
});
