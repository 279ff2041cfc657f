/** The theme: the system's, or the one that was chosen in this browser. */

export type Theme = "system" | "light" | "dark";

const KEY = "torchyard-theme";
const THEMES: readonly Theme[] = ["system", "light", "dark"];
const system = matchMedia("(prefers-color-scheme: dark)");

let chosen = $state<Theme>(stored());
let isSystemDark = $state(system.matches);

/** Returns what was chosen. Reactive. */
export function theme(): Theme {
  return chosen;
}

/** Returns whether the page is dark now. Reactive: for what draws with colours of its own. */
export function isDark(): boolean {
  return chosen === "system" ? isSystemDark : chosen === "dark";
}

export function choose(to: Theme): void {
  chosen = to;
  try {
    localStorage.setItem(KEY, to);
  } catch {
    // A browser that stores nothing keeps the choice until the page is closed.
  }
  apply();
}

/** Sets the theme before the first paint, and follows the system and the other tabs. */
export function followTheme(): void {
  system.addEventListener("change", () => {
    isSystemDark = system.matches;
    apply();
  });
  addEventListener("storage", (event) => {
    if (event.key !== KEY) return;
    chosen = stored();
    apply();
  });
  apply();
}

function apply(): void {
  document.documentElement.dataset["theme"] = isDark() ? "dark" : "light";
}

function stored(): Theme {
  try {
    const found = localStorage.getItem(KEY) as Theme | null;
    return found && THEMES.includes(found) ? found : "system";
  } catch {
    return "system";
  }
}
