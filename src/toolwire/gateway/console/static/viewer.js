// @ts-check
// A read-only view of a document that draws only the rows in sight.
//
// The pane is one list of rows of equal height; long lines are wrapped beforehand, so that a row's place follows from its
// number. Browsers limit the height of an element (Firefox 17.8 million pixels), so a longer list scrolls faster than it shows.
// Marks are ranges of source offsets. They are drawn inside tokens, or as a band over rows that they cover whole.
import { html, cx, count, useState, useEffect, useLayoutEffect, useMemo, useRef, useId } from "./core.js";
import { wrap, rowTokens } from "./lines.js";

/** @typedef {import("./lines.js").Doc} Doc */
/** @typedef {{ from: number, to: number, mark: string, title?: string, id?: string }} Mark  `mark` is a class name */
/** @typedef {{ offset: number, to?: number, serial: number }} Target  an offset to scroll to; the serial makes it new */

const ROW = 20; // pixels, as --row in the style sheet
const SPARE = 6; // rows drawn above and below, so that scrolling shows no gap
const TALLEST = 12e6; // pixels

// Characters that are not visible, or that reorder others: shown by their code point, so that nothing hides in a document.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udfff]/g;

/** @param {string} text @returns {import("./core.js").Child} */
function visible(text) {
  INVISIBLE.lastIndex = 0;
  if (!INVISIBLE.test(text)) return text;
  const parts = [];
  let at = 0;
  INVISIBLE.lastIndex = 0; // `matchAll` begins there
  for (const found of text.matchAll(INVISIBLE)) {
    if (found.index > at) parts.push(text.slice(at, found.index));
    const code = /** @type {number} */ (found[0].codePointAt(0)).toString(16).toUpperCase().padStart(4, "0");
    parts.push(html`<span class="invisible" title=${`invisible character U+${code}`}>${`U+${code}`}</span>`);
    at = found.index + found[0].length;
  }
  parts.push(text.slice(at));
  return parts;
}

/** @type {Map<string, number>} */
const widths = new Map();

/** The width of a character in the font of an element. @param {Element} element */
function characterWidth(element) {
  const { font } = getComputedStyle(element);
  let width = widths.get(font);
  if (width === undefined) {
    const context = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
    context.font = font;
    width = context.measureText("0".repeat(100)).width / 100 || 8;
    widths.set(font, width);
  }
  return width;
}

/**
 * @typedef {object} ViewerProps
 * @property {Doc} doc
 * @property {string} label
 * @property {Mark[]} [marks]
 * @property {Target | null} [target]
 * @property {(offset: number | null) => void} [onPoint]  the pointer or the cursor is at an offset
 * @property {(offset: number) => void} [onPick]  a click, or Enter
 * @property {boolean} [exact]  a click reports the character, not the token
 * @property {boolean} [follow]  keep the last row in sight
 */

/** @param {ViewerProps} props */
export function Viewer({ doc, label, marks = [], target = null, onPoint, onPick, exact = false }) {
  /** @type {{ current: HTMLElement | null }} */ const pane = useRef(null);
  const [size, setSize] = useState({ height: 0, columns: 80 });
  const [top, setTop] = useState(0);
  const [cursor, setCursor] = useState(-1); // row
  const [token, setToken] = useState(0); // of the cursor's row
  const id = useId();

  useLayoutEffect(() => {
    const element = /** @type {HTMLElement} */ (pane.current);
    const measure = () => {
      const columns = Math.max(20, Math.floor((element.clientWidth - 34) / characterWidth(element)));
      setSize((old) => (old.height === element.clientHeight && old.columns === columns ? old : { height: element.clientHeight, columns }));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  const rows = useMemo(() => wrap(doc, size.columns), [doc, size.columns]);
  const total = rows.count * ROW + 16;
  const height = Math.min(total, TALLEST);
  // rows per pixel of the scroll bar: 1 / ROW unless the list is too tall
  const stretch = height === total ? 1 : (total - size.height) / (height - size.height);
  const offset = top * stretch;
  const start = Math.max(0, Math.floor(offset / ROW) - SPARE);
  const stop = Math.min(rows.count, Math.ceil((offset + size.height) / ROW) + SPARE);

  const reveal = (/** @type {number} */ row, /** @type {boolean} */ centre) => {
    const element = pane.current;
    if (!element) return;
    const y = row * ROW;
    const view = element.scrollTop * stretch;
    if (centre ? y >= view + ROW && y + 3 * ROW <= view + element.clientHeight : y >= view && y + ROW <= view + element.clientHeight - 8) return;
    element.scrollTop = (centre ? y - element.clientHeight / 3 : y < view ? y : y + ROW + 8 - element.clientHeight) / stretch;
    setTop(element.scrollTop);
  };

  const rowOf = (/** @type {number} */ at) => {
    const line = doc.lineAt(at);
    let low = 0;
    let high = rows.count - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (/** @type {number} */ (rows.line[middle]) < line) low = middle + 1;
      else high = middle;
    }
    // a wrapped line: the row that contains the offset
    while (low + 1 < rows.count && rows.line[low + 1] === line) {
      const next = rowTokens(doc, rows, low + 1).tokens.find((piece) => piece.from >= 0);
      if (!next || next.from > at) break;
      low += 1;
    }
    return low;
  };

  useEffect(() => {
    if (!target || !size.height) return;
    const row = rowOf(target.offset);
    reveal(row, true);
    setCursor(row);
    setToken(0);
  }, [target?.serial, rows, size.height > 0]);

  useEffect(() => {
    setCursor(-1);
  }, [doc]);

  const offsetsOf = (/** @type {number} */ row) => rowTokens(doc, rows, row).tokens.filter((piece) => piece.from >= 0).map((piece) => piece.from);

  const moveTo = (/** @type {number} */ row, /** @type {number} */ place) => {
    const next = Math.max(0, Math.min(rows.count - 1, row));
    const offsets = offsetsOf(next);
    const piece = Math.max(0, Math.min(offsets.length - 1, place));
    setCursor(next);
    setToken(piece);
    reveal(next, false);
    const at = offsets[piece];
    if (at !== undefined) onPoint?.(at);
  };

  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(size.height / ROW) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.count, End: rows.count };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    if (step) moveTo(cursor < 0 ? (step > 0 ? start + (step === 1 ? 0 : step) : 0) : cursor + step, 0);
    else if (event.key === "ArrowRight" && cursor >= 0) moveTo(cursor, token + 1);
    else if (event.key === "ArrowLeft" && cursor >= 0) moveTo(cursor, token - 1);
    else if ((event.key === "Enter" || event.key === " ") && cursor >= 0) {
      const at = offsetsOf(cursor)[token];
      if (at !== undefined) onPick?.(at);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const pointed = useRef(-1);
  const over = (/** @type {MouseEvent} */ event) => {
    const at = offsetFrom(event.target);
    if (at === pointed.current) return;
    pointed.current = at;
    onPoint?.(at < 0 ? null : at);
  };
  const click = (/** @type {MouseEvent} */ event) => {
    const at = exact ? characterFrom(event) : offsetFrom(event.target);
    if (at >= 0) onPick?.(at);
  };

  const drawn = [];
  if (size.height) {
    // only the marks in sight
    const [low] = start < rows.count ? doc.range(/** @type {number} */ (rows.line[start])) : [0];
    const high = stop > start ? doc.range(/** @type {number} */ (rows.line[stop - 1]))[1] : 0;
    const near = marks.filter((mark) => mark.from <= high && mark.to >= low);
    for (let row = start; row < stop; row++) drawn.push(renderRow(doc, rows, row, near, row === cursor ? token : -1, id));
  }

  return html`<div
    ref=${pane}
    class="viewer"
    role="listbox"
    tabindex="0"
    aria-label=${label}
    aria-activedescendant=${cursor >= start && cursor < stop ? `${id}-${cursor}` : null}
    onScroll=${(/** @type {any} */ event) => setTop(event.currentTarget.scrollTop)}
    onKeyDown=${press}
    onMouseOver=${over}
    onMouseLeave=${() => {
      pointed.current = -1;
      onPoint?.(null);
    }}
    onClick=${click}
  >
    <div class="extent" role="presentation" style=${{ height: `${height}px` }}>
      <div class="rows" role="presentation" style=${{ transform: `translateY(${start * ROW - offset + top + 8}px)` }}>${drawn}</div>
    </div>
  </div>`;
}

/** @param {Doc} doc @param {import("./lines.js").Rows} rows @param {number} row @param {Mark[]} marks @param {number} active the token of the cursor, or -1 @param {string} id */
function renderRow(doc, rows, row, marks, active, id) {
  const line = /** @type {number} */ (rows.line[row]);
  const [from, to] = doc.range(line);
  const { tokens, cut } = rowTokens(doc, rows, row);
  /** @type {string[]} */ const bands = [];
  /** @type {Mark[]} */ const inside = [];
  let sign = "";
  for (const mark of marks) {
    if (mark.to <= from && !(mark.from === mark.to && mark.from === from)) continue;
    if (mark.from >= to && !(to === from && mark.from === from)) continue;
    if (mark.mark.startsWith("loss") && mark.from >= from && mark.from < to) sign = mark.mark;
    // a mark that goes beyond the line on either side is a band over the whole row
    if (mark.from < from || mark.to > to) {
      if (mark.from > from) inside.push({ ...mark, mark: `${mark.mark} opening` });
      else bands.push(mark.mark);
    } else inside.push(mark);
  }
  let piece = -1;
  return html`<div
    key=${row}
    id=${`${id}-${row}`}
    class=${cx("row", ...bands.map((name) => `band-${name.split(" ")[0]}`), active >= 0 && "cursor")}
    role="option"
    aria-selected=${String(active >= 0)}
    aria-label=${tokens.some((token) => token.text.trim()) ? null : "empty line"}
  >
    <span class=${cx("sign", sign)} aria-hidden="true"></span>${tokens.map((token) => {
      if (token.from >= 0) piece += 1;
      return renderToken(token, token.from >= 0 && piece === active, inside, from);
    })}${cut ? html`<span class="cut">… ${count(cut)} more characters</span>` : null}
  </div>`;
}

/** @param {import("./lines.js").Token} token @param {boolean} active @param {Mark[]} marks @param {number} from */
function renderToken(token, active, marks, from) {
  const name = cx("t", token.kind, active && "active");
  if (token.from < 0) return html`<span class=${name} data-from=${from}>${token.text}</span>`;
  const end = token.from + token.text.length;
  const near = marks.filter((mark) => mark.from < end && mark.to > token.from);
  if (!near.length) return html`<span class=${name} data-from=${token.from}>${visible(token.text)}</span>`;
  const edges = new Set([token.from, end]);
  for (const mark of near) {
    if (mark.from > token.from) edges.add(mark.from);
    if (mark.to < end) edges.add(mark.to);
  }
  const places = [...edges].sort((a, b) => a - b);
  return places.slice(0, -1).map((place, index) => {
    const next = /** @type {number} */ (places[index + 1]);
    const over = near.filter((mark) => mark.from <= place && mark.to >= next);
    const title = over.find((mark) => mark.title)?.title;
    return html`<span class=${cx(name, ...over.map((mark) => mark.mark))} data-from=${place} title=${title ?? null}>${visible(token.text.slice(place - token.from, next - token.from))}</span>`;
  });
}

/** @param {EventTarget | null} element */
function offsetFrom(element) {
  const token = element instanceof Element ? element.closest("[data-from]") : null;
  return token ? Number(token.getAttribute("data-from")) : -1;
}

/** The source offset of the character at the pointer. @param {MouseEvent} event */
function characterFrom(event) {
  const base = offsetFrom(event.target);
  const range = document.caretRangeFromPoint?.(event.clientX, event.clientY);
  return base >= 0 && range && range.startContainer.nodeType === Node.TEXT_NODE && offsetFrom(range.startContainer.parentElement) === base ? base + range.startOffset : base;
}
