import svelte from "eslint-plugin-svelte";
import tseslint from "typescript-eslint";
import config from "./svelte.config.js";

export default tseslint.config(
  { ignores: ["**/*.ts", "**/*.js", "!**/*.svelte.ts", ".svelte-check/"] },
  ...tseslint.configs.strict,
  ...svelte.configs.recommended,
  {
    files: ["**/*.svelte", "**/*.svelte.ts"],
    languageOptions: { parserOptions: { parser: tseslint.parser, svelteConfig: config } },
  },
  {
    rules: {
      "svelte/no-at-html-tags": "error",
      "svelte/no-inline-styles": "off", // style: directives go through the CSSOM, which the policy allows
      "svelte/no-navigation-without-resolve": "off", // rules for SvelteKit
      "svelte/prefer-svelte-reactivity": "off", // a plain Map is meant: what is reactive says $state
      "no-console": "error",
    },
  },
);
