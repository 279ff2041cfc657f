/** Formats a share of 0…1, such as `36%`. */
export function percent(share: number | null | undefined): string {
  return share === null || share === undefined ? "—" : `${Math.round(share * 100)}%`;
}
