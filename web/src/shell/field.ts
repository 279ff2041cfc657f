/** Fields that search or filter as one types. */
import type { Attachment } from "svelte/attachments";

const SETTLED_MS = 150;

/** Passes the text of a field on once the typing rests for `wait` ms, and at once that it is empty. Escape empties it, or leaves it. */
export function whenTyped(tell: (text: string) => void, wait = SETTLED_MS): Attachment<HTMLInputElement> {
  return (field) => {
    let timer: ReturnType<typeof setTimeout> | undefined;

    function typed(): void {
      clearTimeout(timer);
      if (wait === 0 || field.value === "") tell(field.value);
      else timer = setTimeout(() => tell(field.value), wait);
    }

    function pressed(event: KeyboardEvent): void {
      if (event.key !== "Escape") return;
      event.preventDefault(); // not every browser empties a field, and not every one says that it did
      if (field.value === "") return field.blur();
      field.value = "";
      typed();
    }

    field.addEventListener("input", typed);
    field.addEventListener("keydown", pressed);
    return () => {
      clearTimeout(timer); // another page has another filter
      field.removeEventListener("input", typed);
      field.removeEventListener("keydown", pressed);
    };
  };
}
