/**
 * Characters that turn, hide or break what stands beside them: controls but for tabs and ends of lines, marks of
 * direction, what has no width, and letters that only tag others.
 */
const HIDDEN =
  /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/u;
/** Joiners are spelling after pictures and in scripts that join letters; elsewhere they only hide. */
const JOINER =
  /(?<![\p{Extended_Pictographic}\ufe0f\u{1f3fb}-\u{1f3ff}\p{M}]|[^\P{L}\p{Script=Latin}\p{Script=Cyrillic}\p{Script=Greek}])[\u200c\u200d]/u;
const NAMED = new RegExp(`${HIDDEN.source}|${JOINER.source}`, "gu");

/** Returns a stranger's text with the names of characters that turn or hide what stands beside them. */
export function visible(text: string): string {
  return text.replace(NAMED, (found) => `⟨U+${hex(found)}⟩`);
}

function hex(character: string): string {
  return (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
}
