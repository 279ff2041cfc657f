/** Colours from the worst to the best: blue and yellow, which the colour-blind tell apart, the stronger one for the best. */
import type { Theme } from "../charts/theme";
import type { Better } from "./direction";

export const STEPS = 16;

type Rgb = readonly [number, number, number];

/** Returns the colours of a theme from the worst to the best. */
export function rampOf(theme: Theme): readonly string[] {
  const [blue, yellow, ground] = [theme.series[0], theme.series[4], theme.bg].map((text) =>
    rgbOf(text ?? ""),
  );
  if (!blue || !yellow || !ground) return [];
  const isBlueStronger = contrast(blue, ground) > contrast(yellow, ground);
  const [worst, best] = isBlueStronger ? [yellow, blue] : [blue, yellow];
  return Array.from({ length: STEPS }, (_, i) => textOf(mixed(worst, best, i / (STEPS - 1))));
}

/** Returns the step of a share of the target, the best last. Without a direction more is last. */
export function stepOf(share: number, better: Better | null): number {
  const good = better === "min" ? 1 - share : share;
  return Math.max(0, Math.min(STEPS - 1, Math.round(good * (STEPS - 1))));
}

function rgbOf(text: string): Rgb {
  const value = parseInt(text.replace("#", ""), 16);
  return Number.isNaN(value) ? [128, 128, 128] : [value >> 16, (value >> 8) & 255, value & 255];
}

function textOf(rgb: Rgb): string {
  return `#${rgb.map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`;
}

function mixed(from: Rgb, to: Rgb, share: number): Rgb {
  const at = (i: 0 | 1 | 2): number => from[i] + (to[i] - from[i]) * share;
  return [at(0), at(1), at(2)];
}

function contrast(a: Rgb, b: Rgb): number {
  const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return ((light ?? 0) + 0.05) / ((dark ?? 0) + 0.05);
}

/** Relative luminance, as WCAG has it. */
function luminance(rgb: Rgb): number {
  const [red, green, blue] = rgb.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * (red ?? 0) + 0.7152 * (green ?? 0) + 0.0722 * (blue ?? 0);
}
