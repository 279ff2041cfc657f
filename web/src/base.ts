/** The address of the folder below which the page and the API lie: assets know it, wherever a proxy mounts it. */
export const BASE = import.meta.env.DEV
  ? new URL("/", location.href)
  : new URL(/* @vite-ignore */ "../", import.meta.url);
