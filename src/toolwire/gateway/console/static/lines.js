// @ts-check
// Documents as lines, for a viewer that draws only the lines in sight.
//
// A JSON document is laid out again, one member per line, directly from its text: numbers keep their digits (2^53+1 stays
// itself), duplicate keys stay visible, and nothing is built but arrays of offsets, because a body may have ten megabytes.
// The parser keeps its own stack: a document of 100,000 brackets must not exhaust the stack of the browser.
// All offsets are positions in the text as it came, so marks made by the server fit whatever the layout.

/** @typedef {{ text: string, kind: string, from: number }} Token  a piece of a line; `from` is its offset in the source, or -1 */
/**
 * @typedef {object} Doc
 * @property {string} text
 * @property {number} count  the number of lines
 * @property {(line: number) => number} width  characters of a line, for wrapping
 * @property {(line: number) => number} indent
 * @property {(line: number) => Token[]} tokens
 * @property {(line: number) => [number, number]} range  the source offsets of a line
 * @property {(offset: number) => number} lineAt  the line that contains a source offset
 */

const INDENT = 2;
const DEEPEST = 24; // deeper levels share one indentation, or their text would leave the pane

const SPACE = /[ \t\n\r]*/y;
const SCALAR = /-?[0-9][0-9.eE+-]*|true|false|null/y;

/** @param {RegExp} pattern @param {string} text @param {number} at */
function match(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : -1;
}

/** The end of a string, or -1. A regular expression exhausts the stack on a string of ten megabytes. @param {string} text @param {number} at */
function stringEnd(text, at) {
  if (text[at] !== '"') return -1;
  for (let quote = text.indexOf('"', at + 1); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let slash = quote;
    while (text[slash - 1] === "\\") slash -= 1;
    if ((quote - slash) % 2 === 0) return quote + 1;
  }
  return -1;
}

/** @param {number[]} list @param {number} index */
const get = (list, index) => /** @type {number} */ (list[index]);

/** The last index of an ascending list whose value is at most `value`. @param {(index: number) => number} at @param {number} count @param {number} value */
function findLast(at, count, value) {
  let low = 0;
  let high = count - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (at(middle) <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Lines of a JSON text, or null if it is not JSON. @param {string} text @returns {Doc | null} */
export function layoutJson(text) {
  /** @type {number[]} */ const depth = [];
  /** @type {number[]} */ const keyFrom = [];
  /** @type {number[]} */ const keyTo = [];
  /** @type {number[]} */ const from = [];
  /** @type {number[]} */ const to = [];
  /** @type {boolean[]} */ const comma = [];
  /** @type {boolean[]} */ const open = []; // containers that are not closed yet; true for an object

  let at = match(SPACE, text, 0);
  let keyAt = -1;
  let keyEnd = -1;

  /** @param {number} start @param {number} stop */
  const addLine = (start, stop) => {
    depth.push(open.length);
    keyFrom.push(keyAt);
    keyTo.push(keyEnd);
    from.push(start);
    to.push(stop);
    comma.push(false);
    keyAt = keyEnd = -1;
  };

  const readKey = () => {
    const stop = stringEnd(text, at);
    if (stop < 0) return false;
    keyAt = at;
    keyEnd = stop;
    const colon = match(SPACE, text, stop);
    at = match(SPACE, text, colon + 1);
    return text[colon] === ":";
  };

  for (;;) {
    const bracket = text[at];
    if (bracket === "{" || bracket === "[") {
      const next = match(SPACE, text, at + 1);
      if (text[next] !== (bracket === "{" ? "}" : "]")) {
        addLine(at, at + 1);
        open.push(bracket === "{");
        at = next;
        if (bracket === "{" && !readKey()) return null;
        continue;
      }
      addLine(at, next + 1);
      at = next + 1;
    } else {
      const stop = bracket === '"' ? stringEnd(text, at) : match(SCALAR, text, at);
      if (stop < 0) return null;
      addLine(at, stop);
      at = stop;
    }
    // after a value: a comma, or closing brackets
    for (;;) {
      at = match(SPACE, text, at);
      if (!open.length) return at === text.length ? makeDoc() : null;
      const object = open[open.length - 1];
      if (text[at] === ",") {
        comma[comma.length - 1] = true;
        at = match(SPACE, text, at + 1);
        if (object && !readKey()) return null;
        break;
      }
      if (text[at] !== (object ? "}" : "]")) return null;
      open.pop();
      addLine(at, at + 1);
      at += 1;
    }
  }

  /** @returns {Doc} */
  function makeDoc() {
    const begin = (/** @type {number} */ line) => (get(keyFrom, line) >= 0 ? get(keyFrom, line) : get(from, line));
    const indent = (/** @type {number} */ line) => Math.min(get(depth, line), DEEPEST) * INDENT;
    return {
      text,
      count: from.length,
      indent,
      width: (line) =>
        indent(line) + get(to, line) - get(from, line) + (get(keyFrom, line) < 0 ? 0 : get(keyTo, line) - get(keyFrom, line) + 2) + (comma[line] ? 1 : 0),
      tokens(line) {
        /** @type {Token[]} */ const tokens = [];
        const start = get(from, line);
        if (indent(line)) tokens.push({ text: " ".repeat(indent(line)), kind: "pad", from: -1 });
        if (get(keyFrom, line) >= 0) {
          tokens.push({ text: text.slice(get(keyFrom, line), get(keyTo, line)), kind: "key", from: get(keyFrom, line) });
          tokens.push({ text: ": ", kind: "mute", from: -1 });
        }
        tokens.push({ text: text.slice(start, get(to, line)), kind: kindOf(text[start]), from: start });
        if (comma[line]) tokens.push({ text: ",", kind: "mute", from: -1 });
        return tokens;
      },
      range: (line) => [begin(line), get(to, line)],
      lineAt: (offset) => findLast(begin, from.length, offset),
    };
  }
}

/** @param {string | undefined} start */
function kindOf(start) {
  if (start === '"') return "string";
  if (start === "{" || start === "[" || start === "}" || start === "]") return "mute";
  return start === "t" || start === "f" || start === "n" ? "word" : "number";
}

/** Lines of any text. @param {string} text @param {boolean} [fields] colour the fields and JSON of a stream @returns {Doc} */
export function layoutText(text, fields = false) {
  /** @type {number[]} */ const starts = [0];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  if (starts.length > 1 && get(starts, starts.length - 1) === text.length) starts.pop(); // a final newline begins no line
  const start = (/** @type {number} */ line) => get(starts, line);
  const stop = (/** @type {number} */ line) => {
    const end = line + 1 < starts.length ? start(line + 1) - 1 : text.endsWith("\n") ? text.length - 1 : text.length;
    return Math.max(start(line), end);
  };
  return {
    text,
    count: starts.length,
    indent: () => 0,
    width: (line) => stop(line) - start(line),
    tokens(line) {
      const piece = text.slice(start(line), stop(line));
      return fields ? fieldTokens(piece, start(line)) : [{ text: piece, kind: "text", from: start(line) }];
    },
    range: (line) => [start(line), stop(line)],
    lineAt: (offset) => findLast(start, starts.length, offset),
  };
}

/** Lines of a document: laid out if it is JSON, else as they are. @param {string} text @returns {Doc} */
export function layout(text) {
  const first = text[match(SPACE, text, 0)];
  return (first === "{" || first === "[" || first === '"' ? layoutJson(text) : null) ?? layoutText(text, /^(data|event|id|retry|:|\{)/m.test(text.slice(0, 4000)));
}

const FIELD = /^(?:data|event|id|retry|):(?: ?)/;
const LONG_EVENT = 200_000; // characters of a line that is coloured; the stack of the expression below is limited
const JSON_TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?|-?\d[\d.eE+-]*|\b(?:true|false|null)\b/g;

/** @param {string} text @param {number} base @returns {Token[]} */
function fieldTokens(text, base) {
  /** @type {Token[]} */ const tokens = [];
  const add = (/** @type {number} */ from, /** @type {number} */ to, /** @type {string} */ kind) => {
    if (to > from) tokens.push({ text: text.slice(from, to), kind, from: base + from });
  };
  let at = FIELD.exec(text)?.[0].length ?? 0;
  add(0, at, "field");
  if ((text[at] !== "{" && text[at] !== "[") || text.length > LONG_EVENT) {
    add(at, text.length, "text");
    return tokens;
  }
  JSON_TOKEN.lastIndex = at;
  for (let found = JSON_TOKEN.exec(text); found; found = JSON_TOKEN.exec(text)) {
    add(at, found.index, "mute");
    at = found.index + found[0].length;
    add(found.index, at, found[1] ? "key" : kindOf(found[0][0]));
  }
  add(at, text.length, "mute");
  return tokens;
}

/** @typedef {{ line: number, from: number, to: number, indent: number }} Row  the characters of a line that fit into one row */

const LONGEST = 40; // rows of one line: a longer value, such as an image in base64, ends with its length

/** Break lines into rows of at most `columns` characters, at a space where there is one. @param {Doc} doc @param {number} columns @returns {Rows} */
export function wrap(doc, columns) {
  /** @type {number[]} */ const line = [];
  /** @type {number[]} */ const from = [];
  for (let index = 0; index < doc.count; index++) {
    line.push(index);
    from.push(0);
    const width = doc.width(index);
    if (width <= columns + 1) continue;
    const text = doc.tokens(index).map((token) => token.text).join("");
    const hanging = Math.max(16, columns - hang(doc, index));
    let at = breakAt(text, 0, columns, doc.indent(index));
    for (let row = 1; at < text.length && row < LONGEST; row++) {
      line.push(index);
      from.push(at);
      at = breakAt(text, at, hanging, 0);
    }
  }
  return { line, from, count: line.length };
}

/** @typedef {{ line: number[], from: number[], count: number }} Rows */

/** Indentation of the rows after a line's first. @param {Doc} doc @param {number} line */
export function hang(doc, line) {
  return doc.indent(line) ? doc.indent(line) + 2 : 0;
}

/** @param {string} text @param {number} from @param {number} size @param {number} least */
function breakAt(text, from, size, least) {
  const limit = from + size;
  if (limit + 1 >= text.length) return text.length; // the padding has room for a closing quote
  const space = text.lastIndexOf(" ", limit - 1);
  if (space > from + least + size * 0.4) return space + 1;
  const code = text.charCodeAt(limit);
  return code >= 0xdc00 && code <= 0xdfff ? limit - 1 : limit; // a surrogate pair stays whole
}

/** The part of a line that a row shows. @param {Doc} doc @param {Rows} rows @param {number} row @returns {{ tokens: Token[], cut: number }} */
export function rowTokens(doc, rows, row) {
  const line = get(rows.line, row);
  const from = get(rows.from, row);
  const all = doc.tokens(line);
  const next = row + 1 < rows.count && get(rows.line, row + 1) === line ? get(rows.from, row + 1) : -1;
  const length = all.reduce((sum, token) => sum + token.text.length, 0);
  let to = next < 0 ? length : next;
  let cut = 0;
  if (next < 0 && to - from > 400) {
    cut = to - from - 200; // the last row of a value that is not shown whole
    to = from + 200;
  }
  if (from === 0 && to === length) return { tokens: all, cut: 0 };
  /** @type {Token[]} */ const tokens = [];
  if (from && hang(doc, line)) tokens.push({ text: " ".repeat(hang(doc, line)), kind: "pad", from: -1 });
  let at = 0;
  for (const token of all) {
    const a = Math.max(from, at);
    const b = Math.min(to, at + token.text.length);
    if (b > a) tokens.push({ text: token.text.slice(a - at, b - at), kind: token.kind, from: token.from < 0 ? -1 : token.from + a - at });
    at += token.text.length;
  }
  return { tokens, cut };
}
