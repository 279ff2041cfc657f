/** Lists of texts in an address: with commas between them, whatever the texts are. */

export function listText(items: readonly string[]): string {
  return items.map((item) => item.replace(/[%,]/g, encodeURIComponent)).join(",");
}

/** Reads what `listText` wrote. Empty texts are left out. */
export function listOf(text: string): readonly string[] {
  const items = text.split(",").filter(Boolean);
  return items.map((item) => item.replace(/%25|%2C/g, decodeURIComponent));
}
