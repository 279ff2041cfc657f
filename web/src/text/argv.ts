/** What a script is started with, as somebody types it in a shell. */

interface Program {
  readonly entrypoint?: string | null;
  readonly module?: string | null;
  readonly command?: string | null;
  readonly args?: readonly string[];
}

/** Characters that are shown: a job may have ten million. */
const MOST = 2000;
const MOST_LINES = 200;
const PLAIN = /^[\w@%+=:,./-]+$/;

/** Returns the program of a script and its arguments; null of a recipe. */
export function argvText(spec: { readonly trainer?: string; readonly config: unknown }): string | null {
  if (spec.trainer !== "script") return null;
  const { entrypoint, module, command, args } = spec.config as Program;
  const program = module ? ["-m", module] : [command ?? entrypoint ?? "train.py"];
  const text = [...program, ...(args ?? [])].map(quoted).join(" ");
  return text.length <= MOST ? text : `${text.slice(0, MOST)}…`;
}

/** Returns the arguments of a script, an option with its values on one line, as far as they are shown. */
export function argumentLines(spec: {
  readonly trainer?: string;
  readonly config: unknown;
}): readonly string[] {
  if (spec.trainer !== "script") return [];
  const lines: string[] = [];
  for (const word of ((spec.config as Program).args ?? []).slice(0, MOST_LINES)) {
    const last = lines.at(-1);
    const isValue = last?.startsWith("-") && !/^-\D/.test(word);
    if (isValue) lines[lines.length - 1] = `${last} ${quoted(word)}`;
    else lines.push(quoted(word));
  }
  return lines;
}

function quoted(word: string): string {
  return PLAIN.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}
