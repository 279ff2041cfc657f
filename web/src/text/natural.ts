/** Orders texts with the numbers in them as numbers: `layer2` before `layer10`. */
export const { compare: natural } = new Intl.Collator("en", { numeric: true });
