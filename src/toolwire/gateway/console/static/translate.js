// @ts-check
// View 1: one document in every format.
import { html, cx, count, announce, copyText, useState, useLayoutEffect, useMemo, useRef, Icon, Choice, Switch, Select, Problem, Editor, dropTarget } from "./core.js";
import { ask, faultOf, useAnswer } from "./api.js";
import { Comparison } from "./comparison.js";
import { layout } from "./lines.js";
import { Viewer } from "./viewer.js";

/** @typedef {import("./api.js").Meta} Meta */
/** @typedef {import("./api.js").Translation} Translation */
/** @typedef {{ input: string, source: string, kind: string, strict: boolean, family: string }} State */

const LARGE = 400_000; // characters: above it, the first translation is its own request, so that it appears early

/** What panes are called. A format's title describes it, so its name is shorter. @param {Meta} meta @returns {Record<string, string>} */
export function titlesOf(meta) {
  return Object.fromEntries([...meta.wires.map(({ name, title }) => [name, title]), ...meta.formats.map(({ name }) => [name, name])]);
}

/** The body of a translation request. A sample that is unchanged has its own wire. @param {State} state @param {Meta} meta @param {string[]} targets */
function requestOf(state, meta, targets) {
  const sample = meta.samples.find((candidate) => candidate.view === "translate" && candidate.input === state.input);
  const source = state.source || sample?.format || sample?.wire;
  const kind = state.kind || sample?.kind;
  const isFormat = meta.formats.some(({ name }) => name === source);
  return {
    input: state.input,
    ...(source && { [isFormat ? "format" : "source"]: source }),
    ...(kind && !isFormat && { kind }),
    strict: state.strict,
    targets,
  };
}

/** Translations of one source as one. @param {Translation[]} parts @returns {Translation} */
function joined(parts) {
  const first = /** @type {Translation} */ (parts[0]);
  return {
    ...first,
    outputs: parts.flatMap((part) => part.outputs.filter((output) => output.name !== part.source.name)),
    elements: Object.assign({}, ...parts.map((part) => part.elements)),
  };
}

/** @param {{ meta: Meta, active: boolean, opened: Partial<State> | null, onOpen: (view: string, input: string) => void, onShare: import("./api.js").OnShare }} props */
export function TranslateView({ meta, active, opened, onOpen, onShare }) {
  const samples = meta.samples.filter((sample) => sample.view === "translate");
  const first = meta.file ? { input: meta.file.text } : { input: samples[0]?.input ?? "" };
  const [state, setState] = useState(/** @type {State} */ ({ source: "", kind: "", strict: false, family: "wires", ...first, ...opened }));
  const [editing, setEditing] = useState(false);
  const [file, setFile] = useState(meta.file?.name ?? "");
  const titles = useMemo(() => titlesOf(meta), [meta]);
  const { answer, fault, busy, current } = useAnswer(state, editing ? 300 : 0, async (settled, signal, /** @type {(answer: Translation | null) => void} */ show) => {
    /** @param {string[]} targets @param {boolean} [again] */
    const translate = (targets, again) => ask("api/translate", { ...requestOf(settled, meta, targets), with_source: !again }, signal);
    if (settled.input.length <= LARGE) return show(await translate(settled.family === "all" ? ["wires", "formats"] : [settled.family]));
    show(null); // it takes seconds: show the new source meanwhile
    const [first = "", ...others] = (settled.family === "formats" ? meta.formats : meta.wires).map(({ name }) => name);
    const part = await translate([first]);
    show(joined([part]));
    show(joined([part, await translate(others, true)])); // the server reads the document once for all of them
  });

  const change = (/** @type {Partial<State>} */ part) => setState((old) => ({ ...old, ...part }));
  const edit = (/** @type {string} */ input) => {
    setEditing(true); // also if an error opened the editor: it stays open when the text becomes right
    change({ input });
  };
  const take = (/** @type {string} */ input, /** @type {string} */ name) => {
    const shared = input.length < 1_000_000 ? /#\/[a-z]+\?s=[\w-]+(?=\s*$)/.exec(input) : null;
    if (shared) {
      location.hash = shared[0]; // a shared link, of whatever port
      return;
    }
    setFile(name);
    change({ input, source: "", kind: "" });
    setEditing(false);
  };

  useLayoutEffect(() => {
    if (!active) return;
    const paste = (/** @type {ClipboardEvent} */ event) => {
      if (isTyping(event.target)) return;
      const text = event.clipboardData?.getData("text/plain");
      if (text) take(text, "");
    };
    const key = (/** @type {Event} */ event) => {
      const name = /** @type {CustomEvent<string>} */ (event).detail;
      if (name === "e") setEditing(true);
      if (name === "s") onShare(state);
    };
    window.addEventListener("paste", paste);
    window.addEventListener("toolwire:shortcut", key);
    return () => {
      window.removeEventListener("paste", paste);
      window.removeEventListener("toolwire:shortcut", key);
    };
  }, [active, state]);

  const snippet = async (/** @type {import("./api.js").Output} */ output, /** @type {string} */ language) => {
    try {
      const { text } = await ask("api/snippet", { language, wire: output.name, document: output.text });
      await copyText(text, `${titles[output.name] ?? output.name} as ${language === "typescript" ? "TypeScript" : language === "python" ? "Python" : "curl"}`);
    } catch (error) {
      announce(faultOf(error).message);
    }
  };

  const sample = samples.find((candidate) => candidate.input === state.input);
  const names = [{ value: "", label: "Detect" }, ...meta.wires.map(({ name, title }) => ({ value: name, label: title })), ...meta.formats.map(({ name }) => ({ value: name, label: `${name} (text)` }))];
  const head = html`<div class="pane-tools">
    ${answer?.source.kind === "stream" && !editing ? html`<button type="button" class="quiet" onClick=${() => onOpen("streams", state.input)}>Step through</button>` : null}
    <button type="button" class="quiet" aria-pressed=${String(editing)} onClick=${() => setEditing(!editing)}><${Icon} name=${editing ? "check" : "edit"} />${editing ? "Done" : "Edit"}</button>
  </div>`;
  const editor = html`<${Editor} label="Source to translate" value=${state.input} onInput=${edit} placeholder="Paste or drop a tool, a request, an answer, an error or a stream." autofocus=${editing} />`;
  const place = fault?.at ?? null;
  const waiting = useMemo(() => layout(answer || fault || editing ? "" : state.input), [answer, fault, editing, state.input]);

  return html`<div class="view translate" aria-busy=${String(!current)} ...${dropTarget(take, meta.limits.body_bytes)}>
    <h1 class="hidden-label">Translate</h1>
    <div class="toolbar">
      <${Select}
        label="Sample"
        value=${sample?.id ?? ""}
        onChange=${(/** @type {string} */ id) => {
          const next = samples.find((candidate) => candidate.id === id);
          if (!next) return;
          setFile("");
          setEditing(false);
          change({ input: next.input, source: "", kind: "" });
        }}
        options=${[...(sample ? [] : [{ value: "", label: file || "your text" }]), ...samples.map(({ id, title }) => ({ value: id, label: title }))]}
      />
      <${FileButton} onText=${take} limit=${meta.limits.body_bytes} />
      <${Select} label="Source" value=${state.source} onChange=${(/** @type {string} */ source) => change({ source })} options=${names} />
      <${Select} label="Kind" value=${state.kind} onChange=${(/** @type {string} */ kind) => change({ kind })} options=${[{ value: "", label: "Detect" }, ...meta.kinds.map((kind) => ({ value: kind, label: kind }))]} />
      <span class="grow"></span>
      <${Choice}
        label="Targets"
        value=${state.family}
        onChange=${(/** @type {string} */ family) => change({ family })}
        options=${[
          { value: "wires", label: "Wires", title: "The JSON protocols of providers" },
          { value: "formats", label: "Text formats", title: "Tool calls as a model writes them" },
          { value: "all", label: "All" },
        ]}
      />
      <${Switch} label="Strict" checked=${state.strict} onChange=${(/** @type {boolean} */ strict) => change({ strict })} title="A loss is an error" />
      <${ShareButton} onClick=${() => onShare(state)} />
    </div>
    <p class="hidden-label" role="status">${busy ? "Translating" : fault ? "Not translated" : answer ? `Translated into ${count(answer.outputs.length)} formats, ${count(answer.outputs.reduce((sum, output) => sum + output.losses.length, 0))} losses` : ""}</p>
    <div class=${cx("busy-line", busy && "on")} aria-hidden="true"></div>
    ${answer && !fault
      ? html`<${Comparison} answer=${answer} titles=${titles} sourceHead=${head} sourceBody=${editing ? editor : null} onSnippet=${snippet} busy=${busy} />`
      : html`<div class="comparison">
          <section class="pane source" aria-label="Source">
            <header><div class="pane-title"><h2>Source</h2><p class="sub">${fault ? "not understood" : state.input ? "…" : "empty"}</p></div></header>
            ${fault || editing || !state.input ? editor : html`<${Viewer} doc=${waiting} label="Source" />`}
          </section>
          <div class="targets">
            ${fault
              ? html`<${Problem} error=${fault} onPlace=${place ? () => selectIn(place) : null} />`
              : busy
                ? null
                : html`<div class="empty"><h2>One document, every format</h2><p>Paste a tool, a request, an answer, an error or a stream on the left, drop a file anywhere, or choose a sample above.</p></div>`}
          </div>
        </div>`}
  </div>`;
}

/** Select a place in the editor. @param {import("./api.js").At} at */
function selectIn(at) {
  const area = /** @type {HTMLTextAreaElement | null} */ (document.querySelector(".translate textarea"));
  area?.focus();
  area?.setSelectionRange(at[0], at[1]);
}

/** @param {EventTarget | null} element */
function isTyping(element) {
  return element instanceof HTMLElement && element.matches("input, textarea, select, [contenteditable]");
}

/** @param {{ onText: (text: string, name: string) => void, limit: number }} props */
export function FileButton({ onText, limit }) {
  /** @type {{ current: HTMLInputElement | null }} */ const input = useRef(null);
  const read = async (/** @type {any} */ event) => {
    const file = event.currentTarget.files?.[0];
    event.currentTarget.value = "";
    if (!file) return;
    if (file.size > limit) announce(`${file.name} is larger than the limit of ${count(limit)} bytes`);
    else onText(await file.text(), file.name);
  };
  return html`<button type="button" class="button" onClick=${() => input.current?.click()}><${Icon} name="file" />Open</button>
    <input ref=${input} type="file" class="hidden-label" tabindex="-1" aria-hidden="true" onChange=${read} />`;
}

/** @param {{ onClick: () => void }} props */
export function ShareButton({ onClick }) {
  return html`<button type="button" class="button" onClick=${onClick}><${Icon} name="link" />Share</button>`;
}
