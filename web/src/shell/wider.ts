/** Tells whether what an element holds is wider than it: it scrolls sideways, which not every screen shows. */
import type { Attachment } from "svelte/attachments";

export function wider(tell: (isWider: boolean) => void): Attachment<HTMLElement> {
  return (node) => {
    const sizes = new ResizeObserver(() => tell(node.scrollWidth > node.clientWidth));
    sizes.observe(node);
    for (const child of node.children) sizes.observe(child);
    return () => sizes.disconnect();
  };
}
