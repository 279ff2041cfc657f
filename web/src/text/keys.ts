/** Names of settings. */

/** Returns a name for each key: as many of its last words as no other key has. */
export function shortKeys(keys: readonly string[]): ReadonlyMap<string, string> {
  return new Map(keys.map((key) => [key, short(key, keys)]));
}

function short(key: string, keys: readonly string[]): string {
  const words = key.split(".");
  for (let count = 1; count < words.length; count += 1) {
    const end = words.slice(-count).join(".");
    if (!keys.some((other) => other !== key && `.${other}`.endsWith(`.${end}`))) return end;
  }
  return key;
}
