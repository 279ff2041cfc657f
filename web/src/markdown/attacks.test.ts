import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { removeAll, settled, show, textOf } from "../testing";
import Markdown from "./Markdown.svelte";
import { target } from "./links";
import { parsingWorkers } from "./testing";

beforeEach(parsingWorkers);

afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
});

async function shown(text: string): Promise<HTMLElement> {
  const host = show(Markdown, { text });
  await settled();
  return host;
}

const ATTACKS = [
  "<script>hit()</script>",
  "<img src=x onerror=hit()>",
  "a <b onclick=hit()>b</b> c",
  "<svg/onload=hit()>",
  "<iframe srcdoc='<script>parent.hit()</script>'></iframe>",
  "<style>* { display: none }</style>",
  "<base href='https://evil.example/'>",
  "<form action='https://evil.example/'><input name=token></form>",
  "[a](javascript:hit())",
  "[a](JaVaScRiPt:hit())",
  "[a](java\tscript:hit())",
  "[a](&#106;avascript:hit())",
  "[a](javascript&colon;hit())",
  "[a](data:text/html,<script>hit()</script>)",
  "[a](vbscript:hit())",
  "[a](file:///etc/passwd)",
  "[a](//evil.example/x)",
  "[a](/v1/logout)",
  "<javascript:hit()>",
  '[a](https://example.com "\\" onmouseover=\\"hit()")',
  "[a]: javascript:hit()\n\n[a]",
  "[a][b]\n\n[b]: data:text/html,<script>hit()</script>",
  "[a](\u0001javascript:hit())",
  "[a](<javascript:hit()>)",
  "[a](https:\\\\evil.example\\x)",
  "[a [b](javascript:hit()) c](vbscript:hit())",
  "[^1]\n\n[^1]: <img src=x onerror=hit()>",
  '<https://a.example/"onmouseover="hit()>',
  "https://a.example/'onmouseover='hit()",
  "![a](javascript:hit())",
  "![a](https://evil.example/seen.png)",
  '![a](x" onerror="hit())',
  "```html\n<script>hit()</script>\n```",
  "`<script>hit()</script>`",
  "| <img src=x onerror=hit()> |\n| - |\n| <script>hit()</script> |",
  "- [ ] <img src=x onerror=hit()>",
  "<!-- --!><img src=x onerror=hit()> -->",
  "&lt;script&gt;hit()&lt;/script&gt;",
  "{@html '<script>hit()</script>'}",
];
const ALLOWED = new Set(
  "div p h3 h4 h5 h6 pre code blockquote hr table thead tbody tr th td ul ol li input a strong em del br span".split(
    " ",
  ),
);
const ATTRIBUTES = new Set([
  "class",
  "href",
  "target",
  "rel",
  "start",
  "type",
  "disabled",
  "checked",
  "aria-label",
]);

test.each(ATTACKS)("%s is shown, and does nothing", async (text) => {
  const hit = vi.fn();
  vi.stubGlobal("hit", hit);
  const host = await shown(text);
  expect(host.querySelector(".plain")).toBeNull();
  for (const element of host.querySelectorAll("*")) {
    expect(ALLOWED).toContain(element.tagName.toLowerCase());
    for (const { name } of element.attributes) expect(ATTRIBUTES).toContain(name);
    if (element.tagName === "INPUT") expect(element.getAttribute("type")).toBe("checkbox");
    if (element.tagName !== "A") continue;
    expect(element.getAttribute("href")).toMatch(/^https?:\/\//);
    expect(element.getAttribute("rel")).toBe("noopener noreferrer nofollow");
    expect(element.getAttribute("target")).toBe("_blank");
  }
  expect(hit).not.toHaveBeenCalled();
});

test("a link leads to another site, and nowhere else", () => {
  for (const href of ["https://a.example/x?y#z", "http://a.example/"]) expect(target(href)).toBe(href);
  for (const href of [
    "",
    "x",
    "#x",
    "//a.example",
    "/v1/jobs",
    "javascript:1",
    " javascript:1",
    "blob:x",
    "ftp://a",
    "mailto:a@b.example",
  ])
    expect(target(href)).toBeNull();
});

test("a link whose text names another host says where it leads", async () => {
  for (const [text, said] of [
    ["[bank.example](https://evil.example/x)", "bank.example(evil.example)"],
    ["[https://bank.example/login](https://evil.example)", "https://bank.example/login(evil.example)"],
    ["https://bank.example@evil.example/", "https://bank.example@evil.example/(evil.example)"],
    ["[**bank**.example](https://evil.example)", "bank.example(evil.example)"],
    ["[b\u200bank.example](https://evil.example)", "b⟨U+200B⟩ank.example(evil.example)"],
    ["[\u202emoc.knab\u202c](https://evil.example)", "⟨U+202E⟩moc.knab⟨U+202C⟩(evil.example)"],
    ["[раypal.com](https://раypal.com)", "раypal.com(xn--ypal-43d9g.com)"],
    ["![bank.example](https://evil.example/x.png)", "bank.example(evil.example)"],
    ["[a.example or bank.example](https://a.example)", "a.example or bank.example(a.example)"],
    [
      "[http://127.0.0.1:8000/settings](https://evil.example)",
      "http://127.0.0.1:8000/settings(evil.example)",
    ],
    ["[http://torchyard:8000](https://evil.example)", "http://torchyard:8000(evil.example)"],
    ["[https://torchyard/jobs](https://evil.example)", "https://torchyard/jobs(evil.example)"],
    ["[https://a@torchyard](https://evil.example)", "https://a@torchyard(evil.example)"],
    ["[torchyard:8000](https://evil.example)", "torchyard:8000(evil.example)"],
    ["[localhost](https://evil.example)", "localhost(evil.example)"],
    ["[10.0.0.5](https://evil.example)", "10.0.0.5(evil.example)"],
    ["[http://[::1]:8000/](https://evil.example)", "http://[::1]:8000/(evil.example)"],
    ["[HTTP:\\\\torchyard](https://evil.example)", "HTTP:\\torchyard(evil.example)"],
    ["[ｈｔｔｐ：／／torchyard](https://evil.example)", "ｈｔｔｐ：／／torchyard(evil.example)"],
    ["http://127.0.0.1:8000/settings", "http://127.0.0.1:8000/settings"],
    ["[10.0.0.5](http://10.0.0.5/p)", "10.0.0.5"],
    ["[torchyard:8000](http://torchyard:8000/p)", "torchyard:8000"],
    ["[at 12:30, see https://a.example.](https://a.example/p)", "at 12:30, see https://a.example."],
    ["[version 3.14](https://a.example/p)", "version 3.14"],
    ["[the paper](https://a.example/p)", "the paper"],
    ["[a.example](https://www.a.example/p)", "a.example"],
    ["https://a.example/p", "https://a.example/p"],
  ] as const)
    expect(textOf(await shown(text))).toBe(said);
});

test("of a word longer than any host a link says where it leads, without looking for a host in it", async () => {
  for (const word of ["-".repeat(30_000), "a.".repeat(15_000), `${"-".repeat(300)}bank.example`])
    expect(textOf(await shown(`[${word}](https://evil.example)`))).toBe(`${word}(evil.example)`);
});

test("what hides or turns text is named, and emoji stay whole", async () => {
  expect(textOf(await shown("a\u202eb `c\u2066d` 👩\u200d🔬 e\u200df\n\n    g\ufeffh"))).toBe(
    "a⟨U+202E⟩b c⟨U+2066⟩d 👩\u200d🔬 e⟨U+200D⟩fg⟨U+FEFF⟩h",
  );
});

test("what nests without end is shown as it is written", async () => {
  for (const text of [
    ">".repeat(65_536),
    "> ".repeat(30_000),
    "1. ".repeat(20_000),
    "- ".repeat(20) + "a",
    "> - ".repeat(30),
    Array.from({ length: 10_000 }, (_, level) => `${" ".repeat(level % 200)}- a`)
      .slice(0, 200)
      .join("\n"),
    "*a ".repeat(1_000) + "b*".repeat(1_000),
    "[".repeat(30_000) + "]".repeat(30_000),
    "![".repeat(9_000) + "a" + "](https://a.example)".repeat(2_000),
  ]) {
    const host = await shown(text.slice(0, 65_536));
    const deepest = [...host.querySelectorAll("*")].map(depthOf);
    expect(Math.max(...deepest)).toBeLessThan(64);
    expect(textOf(host).length).toBeGreaterThan(0);
  }
});

function depthOf(element: Element): number {
  let depth = 0;
  for (let up = element.parentElement; up; up = up.parentElement) depth += 1;
  return depth;
}

test("what people write is shown", async () => {
  const text =
    "# Why\n\nIt **diverged** at `lr=1`, see [the paper](https://a.example/p).\nNext & <last>\n\n" +
    "- one\n- [x] two\n\n3. three\n\n> said\n\n| a | b |\n| - | - |\n| 1 | ~~2~~ |\n\n```\ncode <b>\n```\n\n---\n![plot](https://a.example/p.png)";
  const host = await shown(text);
  expect(host.querySelector("h3")?.textContent).toBe("Why");
  expect(host.querySelector("strong")?.textContent).toBe("diverged");
  expect(host.querySelector("p")?.textContent).toContain("Next & <last>");
  expect([...host.querySelectorAll("a")].map((link) => [link.textContent, link.href])).toEqual([
    ["the paper", "https://a.example/p"],
    ["plot", "https://a.example/p.png"],
  ]);
  expect(host.querySelector<HTMLInputElement>("li input")?.checked).toBe(true);
  expect(host.querySelector("ol")?.getAttribute("start")).toBe("3");
  expect(host.querySelector("blockquote")?.textContent).toContain("said");
  expect([...host.querySelectorAll("th, td")].map((cell) => cell.textContent)).toEqual(["a", "b", "1", "2"]);
  expect(host.querySelector("pre")?.textContent).toBe("code <b>");
  expect(host.querySelector("hr")).not.toBeNull();
});
