// @ts-check
// One source beside its translations: linked elements, and losses at their place on both sides.
//
// The server names the elements of all documents alike (a call is `c0` everywhere), with their places in each text. The element
// below the pointer or the cursor is lit in all panes; a click pins it and scrolls the other panes to it. A loss has a place in
// the source and, if something is there instead, one in the target.
import { html, cx, plural, announce, copyText, useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, Icon, Choice, Problem } from "./core.js";
import { layout } from "./lines.js";
import { Viewer } from "./viewer.js";

/** @typedef {import("./api.js").Translation} Translation */
/** @typedef {import("./api.js").Output} Output */
/** @typedef {import("./api.js").Place} Place */
/** @typedef {import("./api.js").Loss} Loss */
/** @typedef {import("./viewer.js").Mark} Mark */
/** @typedef {import("./viewer.js").Target} Target */
/** @typedef {{ from: number, to: number, id: string, changed: boolean }} Range */
/** @typedef {{ key: string, loss: Loss, targets: string[], places: Record<string, import("./api.js").At | null> }} LossRow  one loss with all targets that have it */

const PHONE = "(max-width: 820px)"; // as in the style sheet: one pane below the other

let serial = 0;
/** @param {import("./api.js").At | null | undefined} at @returns {Target | null} */
export function goTo(at) {
  return at ? { offset: at[0], to: at[1], serial: ++serial } : null;
}

/** @param {Place[]} places @returns {Range[]} */
function rangesOf(places) {
  return places.flatMap((place) => place.spans.map(([from, to]) => ({ from, to, id: place.id, changed: place.changed })));
}

/** The smallest element that contains an offset. @param {Range[]} ranges @param {number} offset */
function elementAt(ranges, offset) {
  /** @type {Range | null} */ let best = null;
  for (const range of ranges) {
    if (range.from <= offset && offset < range.to && (!best || range.to - range.from < best.to - best.from)) best = range;
  }
  return best?.id ?? null;
}

/** @param {Range[]} ranges @param {string | null} lit @param {string | null} pinned @returns {Mark[]} */
function elementMarks(ranges, lit, pinned) {
  /** @type {Mark[]} */ const marks = [];
  for (const { from, to, id, changed } of ranges) {
    if (id === lit) marks.push({ from, to, mark: id === pinned ? "pin" : "lit" });
    else if (id === pinned) marks.push({ from, to, mark: "pin" });
    if (changed && to - from < 400) marks.push({ from, to, mark: "changed", title: "Not the same as in the source" });
  }
  return marks;
}

/** @type {Record<string, number>} */
const RANK = { dropped: 3, weakened: 2, rewritten: 1, moved: 0 };

/** Losses as rows; the same loss of several targets is one. @param {Output[]} outputs @returns {LossRow[]} */
function lossRows(outputs) {
  /** @type {Map<string, LossRow>} */ const rows = new Map();
  for (const output of outputs) {
    for (const loss of output.losses) {
      const key = JSON.stringify([loss.path, loss.concept, loss.action, loss.source_at, loss.reason]);
      const row = rows.get(key) ?? { key, loss, targets: [], places: {} };
      if (!row.targets.includes(output.name)) row.targets.push(output.name);
      row.places[output.name] ??= loss.target_at;
      rows.set(key, row);
    }
  }
  return [...rows.values()].sort((a, b) => (RANK[b.loss.action] ?? 0) - (RANK[a.loss.action] ?? 0) || (a.loss.source_at?.[0] ?? 0) - (b.loss.source_at?.[0] ?? 0));
}

/** @param {Loss[]} losses @param {"source_at" | "target_at"} side @returns {Mark[]} */
function lossMarks(losses, side) {
  return losses.flatMap((loss) => {
    const at = loss[side];
    return at ? [{ from: at[0], to: Math.max(at[1], at[0] + 1), mark: `loss-${loss.action}`, title: `${loss.concept} ${loss.action}: ${loss.reason}` }] : [];
  });
}

/**
 * @typedef {object} ComparisonProps
 * @property {Translation} answer
 * @property {Record<string, string>} titles  of wires and formats
 * @property {import("./core.js").Child} [sourceHead]  controls of the source's pane
 * @property {import("./core.js").Child} [sourceBody]  instead of the source's view
 * @property {((output: Output, language: string) => void) | null} [onSnippet]
 * @property {boolean} [busy]
 */

/** @param {ComparisonProps} props */
export function Comparison({ answer, titles, sourceHead, sourceBody, onSnippet, busy }) {
  const [lit, setLit] = useState(/** @type {string | null} */ (null));
  const [pinned, setPinned] = useState(/** @type {string | null} */ (null));
  const [only, setOnly] = useState(/** @type {string | null} */ (null)); // losses of one target
  const [chosen, setChosen] = useState(/** @type {string | null} */ (null)); // a loss row's key
  const [targets, setTargets] = useState(/** @type {Record<string, Target | null>} */ ({}));
  const [column, setColumn] = useState("");
  /** @type {{ current: HTMLElement | null }} */ const strip = useRef(null);
  /** @type {{ current: HTMLElement | null }} */ const sourcePane = useRef(null);

  const { source, outputs } = answer;
  const sourceDoc = useMemo(() => layout(source.text), [source.text]);
  const sourceRanges = useMemo(() => rangesOf(source.elements), [source]);
  const rows = useMemo(() => lossRows(outputs), [outputs]);
  const shown = only && outputs.some((output) => output.name === only) ? rows.filter((row) => row.targets.includes(only)) : rows;
  const row = rows.find((candidate) => candidate.key === chosen) ?? null;
  const current = outputs.some((output) => output.name === column) ? column : (outputs[0]?.name ?? "");

  useEffect(() => {
    setLit(null);
    setPinned(null);
    setChosen(null);
  }, [source.text]);

  // stable for all panes, which draw again only for marks of their own
  const point = useCallback((/** @type {string | null} */ id) => setLit(id), []);
  const pin = (/** @type {string | null} */ id, /** @type {string} */ from) => {
    setPinned((old) => (old === id ? null : id));
    setChosen(null);
    if (!id || id === pinned) return;
    /** @type {Record<string, Target | null>} */ const next = {};
    for (const pane of [source, ...outputs]) {
      const place = pane.elements.find((candidate) => candidate.id === id);
      const key = pane === source ? "" : /** @type {Output} */ (pane).name;
      if (key !== from) next[key] = goTo(place?.spans[0]);
    }
    setTargets((old) => ({ ...old, ...next }));
    const element = answer.elements[id];
    const without = outputs.filter((output) => output.text !== null && !output.elements.some((candidate) => candidate.id === id));
    announce(`${element ? `${element.kind} ${element.label}` : id}: in ${outputs.length - without.length} of ${outputs.length} translations`, false);
  };
  const choose = (/** @type {LossRow} */ next) => {
    setChosen(next.key);
    setPinned(null);
    /** @type {Record<string, Target | null>} */ const places = { "": goTo(next.loss.source_at) };
    for (const name of next.targets) places[name] = goTo(next.places[name]);
    setTargets((old) => ({ ...old, ...places }));
    const name = only && next.targets.includes(only) ? only : next.targets.includes(current) ? current : next.targets[0];
    if (name) show(name);
    if (matchMedia(PHONE).matches) sourcePane.current?.scrollIntoView(); // the panes are above the list
  };
  const show = (/** @type {string} */ name) => {
    setColumn(name);
    const element = strip.current?.querySelector(`[data-column="${CSS.escape(name)}"]`);
    if (element && strip.current) strip.current.scrollTo({ left: /** @type {HTMLElement} */ (element).offsetLeft, behavior: "auto" });
  };
  const scrolled = () => {
    const element = strip.current;
    if (!element || !matchMedia(PHONE).matches) return; // one column at a time, on a phone
    const index = Math.round(element.scrollLeft / element.clientWidth);
    const name = outputs[index]?.name;
    if (name) setColumn(name);
  };

  // before the next key: an effect after painting would answer it with the old choice
  useLayoutEffect(() => {
    const press = (/** @type {Event} */ event) => {
      const step = { n: 1, p: -1 }[/** @type {CustomEvent<string>} */ (event).detail];
      if (!step || !shown.length || !strip.current?.offsetParent) return; // of a view that is not shown
      const at = shown.findIndex((candidate) => candidate.key === chosen);
      const next = shown[at < 0 ? (step > 0 ? 0 : shown.length - 1) : (at + step + shown.length) % shown.length];
      if (next) choose(next);
    };
    window.addEventListener("toolwire:shortcut", press);
    return () => window.removeEventListener("toolwire:shortcut", press);
  }, [rows, only, chosen, current, answer]);

  const sourceMarks = useMemo(
    () => [...elementMarks(sourceRanges, lit, pinned), ...lossMarks(shown.map((candidate) => candidate.loss), "source_at"), ...chosenMark(row?.loss.source_at)],
    [sourceRanges, lit, pinned, rows, only, chosen],
  );
  const info = answer.elements[lit ?? pinned ?? ""];

  return html`<div class="comparison">
    <section ref=${sourcePane} class="pane source" aria-label="Source">
      <header>
        <div class="pane-title">
          <h2>${titles[source.name] ?? source.name}</h2>
          <p class="sub">${source.kind}${source.detected ? " · detected" : ""}</p>
        </div>
        ${sourceHead}
      </header>
      ${sourceBody ??
      html`<${Viewer}
        doc=${sourceDoc}
        label=${`Source: ${titles[source.name] ?? source.name} ${source.kind}`}
        marks=${sourceMarks}
        target=${targets[""] ?? null}
        onPoint=${(/** @type {number | null} */ at) => point(at === null ? null : elementAt(sourceRanges, at))}
        onPick=${(/** @type {number} */ at) => pin(elementAt(sourceRanges, at), "")}
      />`}
    </section>
    <div class="targets">
      <div class="targets-head">
        <${Choice}
          tabs
          class="columns-choice"
          label="Translations"
          value=${current}
          onChange=${show}
          options=${outputs.map((output) => ({
            value: output.name,
            controls: `column-${output.name}`,
            kind: output.name === current ? "current" : "",
            label: html`<span>${titles[output.name] ?? output.name}</span><${Count} output=${output} />`,
          }))}
        />
      </div>
      <div class="strip" ref=${strip} onScroll=${scrolled}>
        ${outputs.map(
          (output) => html`<${Column}
            key=${output.name}
            output=${output}
            title=${titles[output.name] ?? output.name}
            lit=${lit}
            pinned=${pinned}
            chosen=${row}
            known=${info}
            busy=${busy}
            kind=${source.kind}
            target=${targets[output.name] ?? null}
            onPoint=${point}
            onPin=${pin}
            onSnippet=${onSnippet}
            onLosses=${() => setOnly(only === output.name ? null : output.name)}
            only=${only}
            onPlace=${output.error?.at ? () => setTargets((old) => ({ ...old, "": goTo(output.error?.at) })) : null}
          />`,
        )}
      </div>
    </div>
    <${Losses} rows=${shown} all=${rows.length} only=${only} titles=${titles} chosen=${chosen} onChoose=${choose} onAll=${() => setOnly(null)} leftOut=${answer.left_out ?? 0} />
  </div>`;
}

/** @param {import("./api.js").At | null | undefined} at @returns {Mark[]} */
function chosenMark(at) {
  return at ? [{ from: at[0], to: Math.max(at[1], at[0] + 1), mark: "chosen" }] : [];
}

/** @param {{ output: Output }} props */
function Count({ output }) {
  if (output.error) return html`<span class="badge error" title=${output.error.message}><span class="hidden-label">error</span>!</span>`;
  const losses = output.losses.length;
  const worst = Math.max(0, ...output.losses.map((loss) => RANK[loss.action] ?? 0));
  return losses
    ? html`<span class=${cx("badge", worst === 3 ? "error" : worst ? "warning" : "info")}>${losses}<span class="hidden-label"> ${losses === 1 ? "loss" : "losses"}</span></span>`
    : html`<span class="badge ok"><span class="hidden-label">lossless</span><${Icon} name="check" /></span>`;
}

/** @param {{ output: Output, title: string, lit: string | null, pinned: string | null, chosen: LossRow | null, known: { kind: string, label: string } | undefined, busy?: boolean, kind: string, target: Target | null, onPoint: (id: string | null) => void, onPin: (id: string | null, from: string) => void, onSnippet?: ((output: Output, language: string) => void) | null, onLosses: () => void, only: string | null, onPlace: (() => void) | null }} props */
function Column({ output, title, lit, pinned, chosen, known, kind, target, onPoint, onPin, onSnippet, onLosses, only, onPlace }) {
  /** @type {{ current: HTMLElement | null }} */ const pane = useRef(null);
  // There are seventy text formats: only the columns in sight have a viewer.
  const [near, setNear] = useState(false);
  useEffect(() => {
    const element = /** @type {HTMLElement} */ (pane.current);
    const observer = new IntersectionObserver((entries) => setNear(Boolean(entries[entries.length - 1]?.isIntersecting)), { root: element.parentElement, rootMargin: "0px 80px" });
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const doc = useMemo(() => layout(near ? (output.text ?? "") : ""), [near, output.text]);
  const ranges = useMemo(() => rangesOf(output.elements), [output]);
  const place = chosen?.targets.includes(output.name) ? chosen.places[output.name] : null;
  const marks = useMemo(
    () => [...elementMarks(ranges, lit, pinned), ...lossMarks(output.losses, "target_at"), ...chosenMark(place)],
    [ranges, lit, pinned, place, output],
  );
  const id = lit ?? pinned;
  const here = output.elements.find((candidate) => candidate.id === id);
  const losses = output.losses.length;
  return html`<section ref=${pane} class="pane column" id=${`column-${output.name}`} data-column=${output.name} role="tabpanel" aria-label=${title}>
    <header>
      <div class="pane-title">
        <h2>${title}</h2>
        ${id && known && output.text !== null
          ? html`<p class=${cx("sub", here ? "" : "absent")}>${here ? `${known.kind}${here.changed ? " · changed" : ""}` : `no ${known.kind} here`}</p>`
          : html`<p class="sub">
              ${output.error
                ? "no result"
                : losses
                  ? html`<button type="button" class="text-button" aria-pressed=${String(only === output.name)} onClick=${onLosses}>${plural(losses, "loss")}</button>`
                  : "lossless"}
            </p>`}
      </div>
      ${output.text === null
        ? null
        : html`<div class="copies" role="group" aria-label=${`Copy ${title}`}>
            <button type="button" class="quiet" title="Copy the document" onClick=${() => copyText(output.text ?? "", title)}><${Icon} name="copy" /><span class="hidden-label">Copy ${title}</span></button>
            ${onSnippet && output.family === "wire" && output.name !== "mcp" && (kind === "request" || kind === "tools")
              ? [["curl", "curl", "curl"], ["python", "Python", "Python"], ["typescript", "TypeScript", "TS"]].map(
                  ([language, name, short]) => html`<button key=${language} type="button" class="quiet" title=${`Copy as ${name}`} onClick=${() => onSnippet(output, language ?? "")}>
                    <span aria-hidden="true">${short}</span><span class="hidden-label">Copy ${title} as ${name}</span>
                  </button>`,
                )
              : null}
          </div>`}
    </header>
    ${output.error
      ? html`<${Problem} error=${output.error} onPlace=${onPlace} />`
      : near && html`<${Viewer}
          doc=${doc}
          label=${`Translation: ${title}`}
          marks=${marks}
          target=${target}
          onPoint=${(/** @type {number | null} */ at) => onPoint(at === null ? null : elementAt(ranges, at))}
          onPick=${(/** @type {number} */ at) => onPin(elementAt(ranges, at), output.name)}
        />`}
  </section>`;
}

/** @param {string[]} names */
function namesOf(names) {
  return names.length > 6 ? `${names.slice(0, 4).join(" · ")} and ${names.length - 4} more` : names.join(" · ");
}

const MANY = 100; // rows of losses in the page; a request with more has the same few reasons again and again

/** @param {{ rows: LossRow[], all: number, only: string | null, titles: Record<string, string>, chosen: string | null, onChoose: (row: LossRow) => void, onAll: () => void, leftOut: number }} props */
function Losses({ rows, all, only, titles, chosen, onChoose, onAll, leftOut }) {
  return html`<section class="losses" aria-label="Losses">
    <header>
      <h2>${all ? "Losses" : "No losses"} ${all ? html`<span class="sum">${rows.length}</span>` : null}</h2>
      ${only && rows.length !== all ? html`<button type="button" class="text-button" onClick=${onAll}>only ${titles[only] ?? only} · show all ${all}</button>` : null}
      ${leftOut ? html`<p class="sub">${plural(leftOut, "element")} more than can be linked</p>` : null}
    </header>
    ${all
      ? html`<ul>
          ${rows.slice(0, MANY).map(
            (row) => html`<li key=${row.key}>
              <button type="button" class=${cx("loss", row.key === chosen && "chosen")} aria-pressed=${String(row.key === chosen)} onClick=${() => onChoose(row)}>
                <span class=${`action ${row.loss.action}`}>${row.loss.action}</span>
                <span class="what"><strong>${row.loss.concept}</strong> ${row.loss.reason}</span>
                <span class="where"><code>${row.loss.path || "/"}</code><span class="names">${namesOf(row.targets.map((name) => titles[name] ?? name))}</span></span>
              </button>
            </li>`,
          )}
          ${rows.length > MANY ? html`<li class="sub">and ${rows.length - MANY} more</li>` : null}
        </ul>`
      : html`<p class="sub">Every translation keeps everything.</p>`}
  </section>`;
}
