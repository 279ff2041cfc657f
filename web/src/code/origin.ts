import type { JobView } from "../api/wire";

/** Where the code of a job comes from, as its spec says. */
export interface Git {
  readonly commit: string;
  readonly branch: string | null;
  readonly isDirty: boolean;
  readonly diff: string;
}

/** Returns what was recorded of the repository, or null. */
export function gitOf(job: JobView): Git | null {
  const git = scriptOf(job)?.git;
  if (!git) return null;
  return {
    commit: git.commit,
    branch: git.branch ?? null,
    isDirty: git.dirty ?? false,
    diff: git.diff ?? "",
  };
}

/** Returns the URL of the code, or null for a recipe. */
export function codeOf(job: JobView): string | null {
  return scriptOf(job)?.code ?? null;
}

/** Returns the path of the program among the files of the code, or null if it is none of them. */
export function programOf(job: JobView): string | null {
  const script = scriptOf(job);
  return script?.entrypoint ?? script?.command?.replace(/^\.\//, "") ?? null;
}

function scriptOf({ spec }: JobView) {
  return spec.trainer === "script" ? spec.config : null;
}
