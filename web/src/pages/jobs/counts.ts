/** The text of a number of jobs. Where not all are counted, there may be more. */
export function countText(count: number, isCounted: boolean): string {
  return `${count.toLocaleString("en")}${isCounted ? "" : "+"}`;
}
