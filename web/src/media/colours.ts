/** Colours of classes and outcomes on a canvas: those of the series, which the colour-blind tell apart. */
import { theme } from "../charts/theme";
import type { Colour, Outcome } from "./masks";

const SLOTS: Readonly<Record<Outcome, number>> = { found: 2, missed: 0, false: 7, other: 4 };
const GOLDEN = 137.508;

/** Returns red, green and blue of a token such as `#1049aa`, or `#fff` as the build shortens it. */
export function parts(token: string): Colour {
  const digits = token.slice(1);
  const hex = digits.length === 3 ? [...digits].map((digit) => digit + digit).join("") : digits;
  const value = Number.parseInt(hex, 16);
  return Number.isNaN(value) ? [128, 128, 128] : [value >> 16, (value >> 8) & 255, value & 255];
}

export function outcomeColours(): Readonly<Record<Outcome, Colour>> {
  const of = (outcome: Outcome): Colour => parts(theme().series[SLOTS[outcome]] ?? "");
  return { found: of("found"), missed: of("missed"), false: of("false"), other: of("other") };
}

/** Returns the colour of a class. Beyond those of the series, the hues go round. */
export function classColour(index: number): Colour {
  const { series } = theme();
  const token = series[index];
  return token ? parts(token) : ofHue((index * GOLDEN) % 360);
}

export function css([red, green, blue]: Colour, alpha = 1): string {
  return `rgb(${red} ${green} ${blue} / ${alpha})`;
}

/** Returns a colour between two, for a share of 0 … 1. */
export function between(from: Colour, to: Colour, share: number): Colour {
  const mix = (a: number, b: number): number => Math.round(a + (b - a) * Math.max(0, Math.min(share, 1)));
  return [mix(from[0], to[0]), mix(from[1], to[1]), mix(from[2], to[2])];
}

function ofHue(hue: number): Colour {
  const channel = (n: number): number => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (0.5 - 0.35 * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [channel(0), channel(8), channel(4)];
}
