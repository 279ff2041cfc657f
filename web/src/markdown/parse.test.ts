/** Markdown as people write it, and as nobody does but to keep a page busy. */
import { expect, test } from "vitest";
import { nodesOf } from "./elements";
import { parse } from "./parse";

/** Returns the elements that are shown, without what a test of attacks looks at. */
function html(text: string): string {
  const host = document.createElement("div");
  host.append(...nodesOf(parse(text) ?? []));
  return host.innerHTML.replace(/ (class|target|rel)="[^"]*"/g, "");
}

test.each([
  [
    "a *b* **c** ***d*** _e_ ~~f~~",
    "<p>a <em>b</em> <strong>c</strong> <em><strong>d</strong></em> <em>e</em> <del>f</del></p>",
  ],
  ["snake_case_name 2*3*4 a * b", "<p>snake_case_name 2<em>3</em>4 a * b</p>"],
  ["\\*a\\* 1\\. \\a", "<p>*a* 1. \\a</p>"],
  ["`a *b*` ``c ` d`` `e", "<p><code>a *b*</code> <code>c ` d</code> `e</p>"],
  ["a  \nb\\\nc\nd", "<p>a<br>b<br>c\nd</p>"],
  ['[a *b*](https://x.example/y_(z) "t")!', '<p><a href="https://x.example/y_(z)">a <em>b</em></a>!</p>'],
  ["[![a](https://x.example/p.png)](<https://y.example>)", '<p><a href="https://y.example/">a</a></p>'],
  [
    "[**![a](https://x.example/p.png)**](https://y.example)",
    '<p><a href="https://y.example/"><strong>a</strong></a></p>',
  ],
  ["[a][1]\n\n[1]: https://x.example", '<p><a href="https://x.example/">a</a></p>'],
  [
    "(see https://x.example/a_b_c).",
    '<p>(see <a href="https://x.example/a_b_c">https://x.example/a_b_c</a>).</p>',
  ],
  ["[a] [b](c) [d][e]", "<p>[a] [b](c) [d][e]</p>"],
  ["# a #\n## b\nc\n===\nd\n---\n#e", "<h3>a</h3><h4>b</h4><h3>c</h3><h4>d</h4><p>#e</p>"],
  ["a\n***\n- - -", "<p>a</p><hr><hr>"],
  ["> a\n> > b\n\nc", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><p>c</p>"],
  ["```py\na\n\n  b\n```\nc\n~~~\nd", "<pre><code>a\n\n  b</code></pre><p>c</p><pre><code>d</code></pre>"],
  ["- a\n  - b\n    c\n- d", "<ul><li>a<ul><li>b\nc</li></ul></li><li>d</li></ul>"],
  ["3. a\n4. b\n\nc", '<ol start="3"><li>a</li><li>b</li></ol><p>c</p>'],
  ["0. a", '<ol start="0"><li>a</li></ol>'],
  ["- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"],
  ["- [ ] a\n- b", '<ul><li><input type="checkbox" disabled="" aria-label="done">a</li><li>b</li></ul>'],
  ["<b>a</b>\n\nc <i>d</i>", "<p>&lt;b&gt;a&lt;/b&gt;</p><p>c &lt;i&gt;d&lt;/i&gt;</p>"],
  ["a &lt; b", "<p>a &amp;lt; b</p>"],
  [
    "a | b\n--|:-:\n1 | `x` | 3\n2\n\nc",
    "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><code>x</code></td></tr><tr><td>2</td><td></td></tr></tbody></table><p>c</p>",
  ],
  ["a\r\nb\r\n\r\nc", "<p>a\nb</p><p>c</p>"],
  ["", ""],
])("%j", (text, shown) => {
  expect(html(text)).toBe(shown);
});

const MOST = 65_536;
const WRITTEN =
  "# Why\n\nIt **diverged** at `lr=1`, see [the paper](https://a.example/p).\n\n- one\n- [x] two\n\n> said\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n";

test("the longest notes that somebody writes have not too many parts", () => {
  const blocks = parse(WRITTEN.repeat(MOST / WRITTEN.length));
  expect(blocks?.length).toBe(5 * Math.floor(MOST / WRITTEN.length));
});

test.each([
  ["quotes in quotes", ">".repeat(MOST)],
  ["lists in lists", "1. ".repeat(20_000)],
  ["a list of many lines", "- a\n".repeat(MOST / 4)],
  ["much emphasis", "*a* ".repeat(MOST / 4)],
  ["many columns, and short rows", `${"|a".repeat(3_000)}\n${"|-".repeat(3_000)}\n${"a\n".repeat(20_000)}`],
])("%s have too many parts", (_, text) => {
  expect(parse(text)).toBeNull();
});
