/** @type {import("@sveltejs/vite-plugin-svelte").SvelteConfig} */
export default {
  compilerOptions: {
    runes: true,
    // Some browsers take a table whose rows are grids for none, unless each part of it has its role.
    warningFilter: ({ code }) => code !== "a11y_no_redundant_roles",
  },
};
