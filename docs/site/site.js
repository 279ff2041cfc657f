/* The theme that was chosen on the page of Torchyard, the list of pages on a narrow screen, and boxes that scroll. */
"use strict";

const dark = matchMedia("(prefers-color-scheme: dark)");

function applyTheme() {
  let chosen = null;
  try {
    chosen = localStorage.getItem("torchyard-theme");
  } catch {
    // A browser that stores nothing has the system's theme.
  }
  const isDark = chosen === "dark" || (chosen !== "light" && dark.matches);
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
}

/** Lets the keyboard scroll what is wider than its box. */
function reachScrollable() {
  for (const box of document.querySelectorAll(".wide, pre")) {
    const scrolls = box.scrollWidth > box.clientWidth;
    box.toggleAttribute("tabindex", scrolls);
    if (scrolls) box.tabIndex = 0;
  }
}

applyTheme();
dark.addEventListener("change", applyTheme);
addEventListener("storage", applyTheme);
addEventListener("resize", reachScrollable);
addEventListener("DOMContentLoaded", () => {
  const isWide = matchMedia("(min-width: 60rem)");
  const open = () => (document.querySelector(".pages details").open = isWide.matches);
  isWide.addEventListener("change", open);
  open();
  reachScrollable();
});
