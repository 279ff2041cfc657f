/** Tells once that an element comes near the screen. */
import type { Attachment } from "svelte/attachments";

export function seen(then: () => void): Attachment<Element> {
  return (element) => {
    const sight = new IntersectionObserver(
      (entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        sight.disconnect();
        then();
      },
      { rootMargin: "200px" },
    );
    sight.observe(element);
    return () => sight.disconnect();
  };
}
