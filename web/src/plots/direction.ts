/** Which way a metric is better. */
export type Better = "min" | "max";

const LESS = new Set(
  "loss error err perplexity ppl mae mse rmse wer cer fid nll bpc ece eer regret latency".split(" "),
);
const MORE = new Set(
  "accuracy acc iou miou f1 auc auroc precision recall dice bleu rouge map ap r2 score psnr ssim reward".split(
    " ",
  ),
);

/** What a job says of the metric that it watches. */
export interface Monitored {
  readonly monitor: string;
  readonly mode: Better;
}

/** Returns which way a metric is better: as the jobs that watch it say, else by its name; null where neither says it. */
export function betterOf(key: string, watched: readonly Monitored[] = []): Better | null {
  const modes = new Set(watched.filter(({ monitor }) => monitor === key).map(({ mode }) => mode));
  if (modes.size > 0) return modes.size === 1 ? ([...modes][0] ?? null) : null;
  const words = (key.split("/").at(-1) ?? "").toLowerCase().split(/[^a-z0-9]+/);
  const [less, more] = [words.some((word) => LESS.has(word)), words.some((word) => MORE.has(word))];
  return less ? "min" : more ? "max" : null;
}
