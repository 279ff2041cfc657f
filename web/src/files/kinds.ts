/** What a file may be shown as. Its name says what is tried, its bytes whether it is that. */
import { bytes } from "../text/bytes";

export type Shown = { readonly as: "picture" | "text" } | { readonly as: "nothing"; readonly why: string };

const PICTURES: readonly string[] = ["png", "jpg", "jpeg", "webp"];
const TEXTS: readonly string[] = [
  ...[
    "txt",
    "log",
    "md",
    "rst",
    "json",
    "jsonl",
    "ndjson",
    "csv",
    "tsv",
    "yaml",
    "yml",
    "toml",
    "ini",
    "cfg",
    "conf",
  ],
  ...["py", "sh", "diff", "patch", "out", "err", "xml", "tex", "sql"],
];
const PROGRAMS: readonly string[] = ["html", "htm", "xhtml", "svg", "svgz", "pdf"];
export const MOST_TEXT = 256 * 1024;
export const MOST_PICTURE = 32 * 1024 * 1024;

export function shownAs(path: string, size: number): Shown {
  const name = path.slice(path.lastIndexOf("/") + 1);
  const type = name.includes(".") ? name.slice(name.lastIndexOf(".") + 1).toLowerCase() : "";
  if (size === 0) return { as: "nothing", why: "It is empty." };
  if (PROGRAMS.includes(type)) return { as: "nothing", why: "Executable file types are not shown." };
  if (PICTURES.includes(type)) return within("picture", size, MOST_PICTURE);
  if (TEXTS.includes(type) || type === "") return within("text", size, MOST_TEXT);
  return { as: "nothing", why: `Files of the type .${type} are not shown.` };
}

/** Returns the media type that the first bytes of a picture tell, or null. Never SVG, which is a program. */
export function pictureType(start: Uint8Array): string | null {
  const text = String.fromCharCode(...start.subarray(0, 12));
  if (text.startsWith("\x89PNG\r\n\x1a\n")) return "image/png";
  if (text.startsWith("\xff\xd8\xff")) return "image/jpeg";
  return text.startsWith("RIFF") && text.slice(8) === "WEBP" ? "image/webp" : null;
}

/** Returns the text of a file, or null where it has none. */
export function decoded(content: Uint8Array): string | null {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(content);
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

function within(as: "picture" | "text", size: number, most: number): Shown {
  if (size <= most) return { as };
  return { as: "nothing", why: `It has ${bytes(size)}; the preview limit is ${bytes(most)}.` };
}
