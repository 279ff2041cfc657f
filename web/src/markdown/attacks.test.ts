import { afterEach, expect, test, vi } from "vitest";
import { removeAll, show } from "../testing";
import Markdown from "./Markdown.svelte";
import { parse, target } from "./parse";

afterEach(async () => {
  await removeAll();
  vi.unstubAllGlobals();
});

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
  "div p h3 h4 h5 h6 pre code blockquote hr table thead tbody tr th td ul ol li input a strong em del br".split(
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

test.each(ATTACKS)("%s is shown, and does nothing", (text) => {
  const hit = vi.fn();
  vi.stubGlobal("hit", hit);
  const host = show(Markdown, { text });
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

test("what nests without end is shown as it is written", () => {
  for (const text of [
    ">".repeat(65_536),
    "> ".repeat(30_000),
    "1. ".repeat(20_000),
    "- ".repeat(20) + "a",
    "> - ".repeat(30),
  ]) {
    const host = show(Markdown, { text });
    expect(host.querySelectorAll("*").length).toBeLessThan(200);
    expect(parse(text).length).toBeGreaterThan(0);
  }
});

test("what people write is shown", () => {
  const text =
    "# Why\n\nIt **diverged** at `lr=1`, see [the paper](https://a.example/p).\nNext & <last>\n\n" +
    "- one\n- [x] two\n\n3. three\n\n> said\n\n| a | b |\n| - | - |\n| 1 | ~~2~~ |\n\n```\ncode <b>\n```\n\n---\n![plot](https://a.example/p.png)";
  const host = show(Markdown, { text });
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
