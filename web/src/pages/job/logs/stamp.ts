/** Says whether a line begins with a time of its own, as Python's logging, loguru, glog and most programs write it. */

const OWN =
  /^[\[(]?(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d|[DIWEF]\d{4} \d\d:\d\d:\d\d|\d\d-\d\d \d\d:\d\d:\d\d)/;

export function hasOwnTime(text: string): boolean {
  return OWN.test(text);
}
