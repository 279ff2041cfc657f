/** The tokens as colours that a canvas understands, and word of their change. */
export interface Theme {
  readonly surface: string;
  readonly bg: string;
  readonly ink: string;
  readonly muted: string;
  readonly grid: string;
  readonly edge: string;
  readonly failed: string;
  readonly bodyFont: string;
  readonly signFont: string;
  /** Of slots 1 … 8, at 0 … 7. */
  readonly series: readonly string[];
}

let current: Theme | null = null;
const listeners = new Set<() => void>();
let stopWatching: (() => void) | null = null;

/** Returns the colours of the theme that is shown. */
export function theme(): Theme {
  current ??= read();
  return current;
}

/** Calls the listener after the theme has changed. Returns how to stop. */
export function onTheme(listener: () => void): () => void {
  listeners.add(listener);
  stopWatching ??= watch();
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    stopWatching?.();
    stopWatching = null;
    current = null;
  };
}

function watch(): () => void {
  const changed = (): void => {
    current = null;
    for (const listener of listeners) listener();
  };
  const observer = new MutationObserver(changed);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "class"] });
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    system.removeEventListener("change", changed);
  };
}

function read(): Theme {
  const style = getComputedStyle(document.documentElement);
  const token = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    surface: token("surface"),
    bg: token("bg"),
    ink: token("ink"),
    muted: token("muted"),
    grid: token("grid"),
    edge: token("edge"),
    failed: token("failed"),
    bodyFont: token("body-font") || "system-ui",
    signFont: token("sign-font") || "system-ui",
    series: Array.from({ length: 8 }, (_, i) => token(`series-${i + 1}`)),
  };
}
