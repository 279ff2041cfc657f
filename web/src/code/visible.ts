const HIDDEN = /[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Returns a stranger's text with the names of characters that turn or hide what stands beside them. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (found) => `⟨U+${found.charCodeAt(0).toString(16).toUpperCase()}⟩`);
}
