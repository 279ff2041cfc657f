/** Markdown as people write it, and as nobody does but to keep a page busy. */
import { afterEach, expect, test } from "vitest";
import { removeAll, show } from "../testing";
import Markdown from "./Markdown.svelte";
import { parse } from "./parse";

afterEach(removeAll);

/** Returns the elements that are shown, without what a test of attacks looks at. */
function html(text: string): string {
  const host = show(Markdown, { text });
  return (host.querySelector(".markdown")?.innerHTML ?? "")
    .replace(/<!--.*?-->/g, "")
    .replace(/ (class|target|rel)="[^"]*"/g, "")
    .replaceAll("<li> ", "<li>")
    .replaceAll(/>\s+(?=<\/?(li|ul|ol|p|h|t|blockquote))/g, ">")
    .trim();
}

test.each([
  [
    "a *b* **c** ***d*** _e_ ~~f~~",
    "<p>a <em>b</em> <strong>c</strong> <em><strong>d</strong></em> <em>e</em> <del>f</del></p>",
  ],
  ["snake_case_name 2*3*4 a * b", "<p>snake_case_name 2<em>3</em>4 a * b</p>"],
  ["**a *b* c", "<p>**a <em>b</em> c</p>"],
  ["*a **b*** c", "<p><em>a <strong>b</strong></em> c</p>"],
  ["\\*a\\* 1\\. \\a", "<p>*a* 1. \\a</p>"],
  ["`a *b*` ``c ` d`` `e", "<p><code>a *b*</code> <code>c ` d</code> `e</p>"],
  ["a  \nb\\\nc\nd", "<p>a  <br>b<br>c\nd</p>"],
  ['[a *b*](https://x.example/y_(z) "t")!', '<p><a href="https://x.example/y_(z)">a <em>b</em></a>!</p>'],
  ["[![a](https://x.example/p.png)](<https://y.example>)", '<p><a href="https://y.example/">a</a></p>'],
  [
    "(see https://x.example/a_b_c).",
    '<p>(see <a href="https://x.example/a_b_c">https://x.example/a_b_c</a>).</p>',
  ],
  ["<https://x.example>, http", '<p><a href="https://x.example/">https://x.example</a>, http</p>'],
  ["[a] [b](c) [d][e]", "<p>[a] [b](c) [d][e]</p>"],
  ["# a #\n## b\nc\n===\nd\n---\n#e", "<h3>a</h3><h4>b</h4><h3>c</h3><h4>d</h4><p>#e</p>"],
  ["a\n***\n- - -", "<p>a</p><hr><hr>"],
  ["> a\n> > b\n\nc", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><p>c</p>"],
  ["```py\na\n\n  b\n```\nc\n~~~\nd", "<pre><code>a\n\n  b</code></pre> <p>c</p> <pre><code>d</code></pre>"],
  ["    a\n    b", "<pre><code>a\nb</code></pre>"],
  ["- a\n  - b\n    c\n- d\ne", "<ul><li>a<ul><li>b\nc</li></ul></li><li>d\ne</li></ul>"],
  ["3. a\n4. b\n\nc", '<ol start="3"><li>a</li><li>b</li></ol><p>c</p>'],
  ["- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"],
  ["- a\n* b", "<ul><li>a</li></ul><ul><li>b</li></ul>"],
  ["a\n- b\n2. c", '<p>a</p><ul><li>b</li></ul><ol start="2"><li>c</li></ol>'],
  [
    "a | b\n--|:-:\n1 | `x` | 3\n2\n\nc",
    "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><code>x</code></td></tr><tr><td>2</td></tr></tbody></table><p>c</p>",
  ],
  ["| a \\| b |\n|-|", "<table><thead><tr><th>a | b</th></tr></thead><tbody></tbody></table>"],
  ["a\r\nb\r\n\r\nc", "<p>a\nb</p><p>c</p>"],
  ["", ""],
])("%j", (text, shown) => {
  expect(html(text)).toBe(shown.replaceAll(/>\s+(?=<\/?(li|ul|ol|p|h|t|blockquote))/g, ">"));
});

const MOST = 65_536;
/** Each keeps a reader busy for seconds, or for ever, that looks back at what it has read. */
const LONG: Readonly<Record<string, string>> = {
  stars: "*",
  "letters with stars": "a*",
  "words with stars": "*a ",
  "letters with lines": "a_",
  "words with both": "**a _b ",
  waves: "a~~",
  backticks: "`a``b",
  brackets: "[",
  "ends of brackets": "[a]",
  links: "[a](",
  "titles of links": '[a](b "',
  pictures: "[![a](",
  addresses: "http://a",
  "addresses that are none": "http://^",
  mail: "a-_",
  "exclamation marks": "!",
  backslashes: "\\",
  tags: "<a b='",
  comments: "<!--",
  footnotes: "[^1]: a\n",
  "empty lines": "\n",
  spaces: " ",
  headings: "# #\n",
  rules: "- ",
  lists: "- a\n",
  "lists in quotes": "> - > - > - a\n",
  "lists with empty lines": "- a\n\n",
  fences: "```\n",
  "lines of a list": "  a\n",
  tables: "|a|\n|-|\n",
  underlines: "a\n=\n",
};

test.each(Object.entries(LONG))("64 KiB of %s are read at once", (_, part) => {
  expect(parse(`- ${part}`.repeat(2) + part.repeat(MOST / part.length)).length).toBeGreaterThan(0);
  expect(parse(part.repeat(MOST / part.length))).toBeDefined();
});

test("a table of many columns and many short rows, an address of many signs, and ticks of all lengths, too", () => {
  const table = `${"|a".repeat(3_000)}\n${"|-".repeat(3_000)}\n${"a\n".repeat(20_000)}`;
  const ticks = Array.from({ length: 360 }, (_, length) => `${"`".repeat(length + 1)}a`).join("");
  for (const text of [
    table,
    ticks,
    `http://a${"?".repeat(MOST)}`,
    `http://a${")".repeat(MOST)}`,
    `a${" ".repeat(MOST)}b`,
  ])
    expect(parse(text).length).toBeGreaterThan(0);
});
