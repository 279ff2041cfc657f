/** What one is about to submit: its YAML, and the document that the form shows, which is that of the newest YAML that could be read. */
import { at, isObject, put, type Json, type JsonObject, type Path } from "../../specs/json";
import {
  isSweep,
  jobOf,
  kindOf,
  placeOf,
  variedIn,
  withMethod,
  withTrainer,
  withValue,
  withVaried,
} from "../../specs/document";
import { Fault, keyOf, lineOf, read, type Read } from "../../specs/reading";
import { fieldsOf, type Field, type Schema } from "../../specs/schema";
import { flow, yaml } from "../../text/yaml";

export class Draft {
  text = $state("");
  document = $state.raw<JsonObject>({});
  /** Why the YAML cannot be read. Until it can, the form stays as it was. */
  fault = $state.raw<Fault | null>(null);
  private found: Read = { document: {}, places: new Map() };

  readonly job = $derived(jobOf(this.document));
  readonly kind = $derived(kindOf(this.document));
  readonly isSweep = $derived(isSweep(this.document));
  /** All fields of the trainer; null if the document names none that there is. */
  readonly root: Field | null = $derived.by(() => fieldsOf(this.schema, this.job.trainer));

  constructor(
    readonly schema: Schema,
    text: string,
  ) {
    this.type(text);
  }

  /** Takes what is typed as YAML. */
  type(text: string): void {
    this.text = text;
    try {
      this.found = read(text);
      this.document = this.found.document;
      this.fault = null;
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.fault = error;
    }
  }

  /** Writes the YAML of a document, with the comments that it began with. */
  write(document: JsonObject): void {
    const [comments = ""] = /^(?:#.*\n|[^\S\n]*\n)*/.exec(this.fault === null ? this.text : "") ?? [];
    this.type(`${comments}${yaml(document)}\n`);
  }

  /** The keys that vary. */
  get variedKeys(): readonly string[] {
    const { parameters } = this.document;
    return this.isSweep && isObject(parameters) ? Object.keys(parameters) : [];
  }

  given(path: Path): Json | undefined {
    return at(this.job, path);
  }

  /** Changes a value of the job spec. Undefined is the default. */
  set(path: Path, value: Json | undefined): void {
    if (this.root === null || this.replaced(placeOf(this.document, path), value)) return;
    this.write(withValue(this.document, this.root, path, value));
  }

  /** Changes a value of the sweep itself. */
  setOfSweep(path: Path, value: Json | undefined): void {
    if (!this.replaced(path, value)) this.write(put(this.document, path, value));
  }

  setTrainer(trainer: string): void {
    const root = fieldsOf(this.schema, trainer);
    if (root) this.write(withTrainer(this.document, trainer, root));
  }

  setMethod(method: string): void {
    this.write(withMethod(this.document, method));
  }

  varied(field: Field): Json | undefined {
    return variedIn(this.document, field.key);
  }

  vary(field: Field, values: Json | undefined): void {
    if (values !== undefined && !this.isSweep && this.root) {
      // The values stand in the sweep, and not in its job too.
      this.write(withVaried(withValue(this.document, this.root, field.path, undefined), field.key, values));
    } else this.write(withVaried(this.document, field.key, values));
  }

  /** Returns the lines that errors are at, by what the service calls the fields of the document. */
  lines(fields: readonly string[]): ReadonlySet<number> {
    return new Set(fields.map((field) => this.line(field)));
  }

  line(field: string): number {
    const parts = field.split(".");
    const parameters = this.document.parameters;
    if (parts[0] === "parameters" && isObject(parameters)) {
      const key = Object.keys(parameters).find((each) => field.startsWith(`parameters.${each}`));
      if (key !== undefined) return lineOf(this.found, ["parameters", key]);
    }
    return lineOf(this.found, parts);
  }

  /** Replaces one value in the text, which keeps all else as it was typed. Returns whether that was possible. */
  private replaced(path: Path, value: Json | undefined): boolean {
    const place = this.fault === null ? this.found.places.get(keyOf(path))?.value : null;
    if (!place || value === undefined || (typeof value === "object" && value !== null)) return false;
    const before = this.text;
    this.type(before.slice(0, place[0]) + flow(value) + before.slice(place[1]));
    if (this.fault === null && at(this.document, path) === value) return true;
    this.type(before); // within other values in brackets, say
    return false;
  }
}
