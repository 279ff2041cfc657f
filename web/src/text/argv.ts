/** What a script is started with, as somebody types it in a shell. */

interface Program {
  readonly entrypoint?: string | null;
  readonly module?: string | null;
  readonly command?: string | null;
  readonly args?: readonly string[];
}

/** Characters that are shown: a job may have ten million. */
const MOST = 2000;
const PLAIN = /^[\w@%+=:,./-]+$/;

/** Returns the program of a script and its arguments; null of a recipe. */
export function argvText(spec: { readonly trainer?: string; readonly config: unknown }): string | null {
  if (spec.trainer !== "script") return null;
  const { entrypoint, module, command, args } = spec.config as Program;
  const program = module ? ["-m", module] : [command ?? entrypoint ?? "train.py"];
  const text = [...program, ...(args ?? [])].map(quoted).join(" ");
  return text.length <= MOST ? text : `${text.slice(0, MOST)}…`;
}

function quoted(word: string): string {
  return PLAIN.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}
