type Value =
  | string
  | number
  | boolean
  | null
  | undefined
  | readonly Value[]
  | { readonly [key: string]: Value };

const BARE = /^(?!\.(\d|inf$|nan$))[A-Za-z_/.][\w /.:@-]*$/i;
const WORDS = new Set(["true", "false", "yes", "no", "on", "off", "null", "y", "n"]);

/** Writes a value on one line, within the flow of other values. */
export function flow(value: unknown): string {
  const item = value as Value;
  if (typeof item !== "object" || item === null) return inline(item) ?? "";
  if (Array.isArray(item)) return `[${item.map(flow).join(", ")}]`;
  return `{${Object.entries(item)
    .map(([key, inner]) => `${text(key)}: ${flow(inner)}`)
    .join(", ")}}`;
}

/** Writes JSON values as YAML, for people to read and to submit again. */
export function yaml(value: unknown): string {
  return block(value as Value, "").join("\n");
}

function block(value: Value, indent: string): string[] {
  if (Array.isArray(value) && value.some((item) => typeof item === "object" && item !== null))
    return (value as readonly Value[]).flatMap((item) => {
      const [first = "", ...rest] = block(item, `${indent}  `);
      return [`${indent}- ${first.trimStart()}`, ...rest];
    });
  if (typeof value === "object" && value !== null && !Array.isArray(value))
    return Object.entries(value).flatMap(([key, item]) => {
      const inner = inline(item);
      return inner === null
        ? [`${indent}${text(key)}:`, ...block(item, `${indent}  `)]
        : [`${indent}${text(key)}: ${inner}`];
    });
  return [indent + (inline(value) ?? "")];
}

/** Returns the value on one line, or null if it needs several. */
function inline(value: Value): string | null {
  if (value === null || value === undefined) return "null";
  if (typeof value === "string") return text(value);
  if (typeof value === "number") return numeral(value);
  if (typeof value !== "object") return String(value);
  if (Array.isArray(value)) {
    const items = value.map((item) => (typeof item === "object" && item !== null ? null : inline(item)));
    return items.includes(null) ? null : `[${items.join(", ")}]`;
  }
  return Object.keys(value).length === 0 ? "{}" : null;
}

/** YAML 1.1, which the command line reads, has no number without a point before its exponent. */
function numeral(value: number): string {
  const written = String(value);
  return written.includes(".") ? written : written.replace("e", ".0e");
}

function text(value: string): string {
  return BARE.test(value) && !WORDS.has(value.toLowerCase()) && !value.includes(": ") && !/[ :]$/.test(value)
    ? value
    : JSON.stringify(value);
}
