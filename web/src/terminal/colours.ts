/** The colours of a terminal, by the theme of the page. All are told from the background (WCAG: 4.5 to 1). */
import type { ITheme } from "@xterm/xterm";

const LIGHT: ITheme = {
  black: "#1f1b16",
  red: "#a3123a",
  green: "#135c43",
  yellow: "#7a4a00",
  blue: "#1049aa",
  magenta: "#7c1d5e",
  cyan: "#1b6770",
  white: "#5e564c",
  brightBlack: "#686058",
  brightRed: "#b8203f",
  brightGreen: "#1f6f52",
  brightYellow: "#8a5300",
  brightBlue: "#055fca",
  brightMagenta: "#8a3c7c",
  brightCyan: "#1b7780",
  brightWhite: "#1f1b16",
};

const DARK: ITheme = {
  black: "#756d63",
  red: "#f08a8c",
  green: "#8fe3c0",
  yellow: "#fcad49",
  blue: "#8ab9ff",
  magenta: "#e79ac8",
  cyan: "#79d4ef",
  white: "#d8d2ca",
  brightBlack: "#a79e92",
  brightRed: "#ffabac",
  brightGreen: "#a8f6d7",
  brightYellow: "#ffd08a",
  brightBlue: "#a1cafe",
  brightMagenta: "#f3b9dc",
  brightCyan: "#a6e7fa",
  brightWhite: "#efeae3",
};

/** Returns the colours for the theme that the document has now. */
export function themeOf(document: Document, isDark: boolean): ITheme {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  return {
    ...(isDark ? DARK : LIGHT),
    background: colour("--sunk"),
    foreground: colour("--ink"),
    cursor: colour("--accent"),
    cursorAccent: colour("--sunk"),
    selectionBackground: `${colour("--focus")}55`,
  };
}
