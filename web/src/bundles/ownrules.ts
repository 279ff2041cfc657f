/** What the .torchyardignore of a folder says of its files, as the command line understands it. */
import { isOf, partsOf, type Pattern } from "./ignoring";

export class OwnRules {
  constructor(private readonly patterns: readonly Pattern[]) {}

  /** Whether the file is packed, by the last line that matches it; null: no line says so. */
  wants(path: string): boolean | null {
    return this.lineOf(path)?.isNegated ?? null;
  }

  /** Whether a `!` line names such files themselves, and not a folder around them alone. */
  wantsPrivate(path: string): boolean {
    const line = this.lineOf(path);
    return line?.isNegated === true && line.line.toLowerCase().includes(".env");
  }

  /**
   * Returns the last line that matches the file or a folder around it. A `!` line of a folder brings no file back that a
   * line before it matches by itself.
   */
  private lineOf(path: string): Pattern | null {
    const parts = partsOf(path);
    const folders = parts.slice(1).map((_, index) => parts.slice(0, index + 1));
    let [found, isFoundOfFile]: [Pattern | null, boolean] = [null, false];
    for (const pattern of this.patterns) {
      const isOfFile = !pattern.isOfFolders && isOf(pattern, parts);
      if (!isOfFile && !folders.some((folder) => isOf(pattern, folder))) continue;
      if (isOfFile || !pattern.isNegated || !isFoundOfFile) [found, isFoundOfFile] = [pattern, isOfFile];
    }
    return found;
  }
}
