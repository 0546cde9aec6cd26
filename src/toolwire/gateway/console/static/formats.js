// @ts-check
// View 3: what a model wrote, read as tool calls.
import { html, cx, plural, useState, useLayoutEffect, useMemo, Choice, Select, Switch, Problem, Editor, dropTarget } from "./core.js";
import { ask, useAnswer } from "./api.js";
import { layoutText } from "./lines.js";
import { Viewer } from "./viewer.js";
import { goTo } from "./comparison.js";
import { FileButton, ShareButton } from "./translate.js";

/** @typedef {import("./api.js").Meta} Meta */
/** @typedef {import("./api.js").At} At */
/** @typedef {import("./viewer.js").Mark} Mark */
/** @typedef {{ kind: string, text: string | null, name?: string | null, id?: string | null, arguments?: string | null, state?: string | null }} Part */
/** @typedef {{ format: string | null, detected: boolean, candidates: { name: string, title: string, calls: number, diagnostics: number }[], parts: Part[], spans: { kind: string, part: number | null, at: At }[], diagnostics: { code: string, detail: string, at: At | null }[] }} Reading */
/** @typedef {{ input: string, format: string, tools: string, thinking: boolean, finished: boolean }} State */

/** @param {{ meta: Meta, active: boolean, opened: Partial<State> | null, onShare: import("./api.js").OnShare }} props */
export function FormatsView({ meta, active, opened, onShare }) {
  const samples = meta.samples.filter((sample) => sample.view === "text");
  const [state, setState] = useState(/** @type {State} */ ({ input: samples[0]?.input ?? "", format: "", tools: "", thinking: false, finished: true, ...opened }));
  const [mode, setMode] = useState("view"); // view, edit or tools
  const [part, setPart] = useState(/** @type {number | null} */ (null));
  const [target, setTarget] = useState(/** @type {import("./viewer.js").Target | null} */ (null));
  const [diagnostic, setDiagnostic] = useState(-1);
  const { answer, fault, busy, current } = useAnswer(
    state,
    mode === "view" ? 0 : 300,
    async ({ input, format, tools, thinking, finished }, signal, /** @type {(answer: { reading: Reading, input: string } | null) => void} */ show) => {
      show({ reading: await ask("api/text", { input, ...(format ? { format } : {}), ...(tools.trim() ? { tools } : {}), thinking, finished }, signal), input });
      setDiagnostic(-1);
    },
  );

  const change = (/** @type {Partial<State>} */ next) => setState((old) => ({ ...old, ...next }));
  const edit = (/** @type {string} */ input) => {
    setMode("edit");
    change({ input });
  };
  const take = (/** @type {string} */ input) => {
    change({ input, format: "" });
    setMode("view");
  };
  const reading = answer?.reading ?? null;
  const diagnostics = reading?.diagnostics ?? [];
  const showDiagnostic = (/** @type {number} */ next) => {
    const found = diagnostics[next];
    if (!found) return;
    setDiagnostic(next);
    setTarget(goTo(found.at));
  };

  useLayoutEffect(() => {
    if (!active) return;
    const key = (/** @type {Event} */ event) => {
      const name = /** @type {CustomEvent<string>} */ (event).detail;
      if (name === "e") setMode("edit");
      if (name === "s") onShare(state);
      if (name === "n" && diagnostics.length) showDiagnostic((diagnostic + 1) % diagnostics.length);
      if (name === "p" && diagnostics.length) showDiagnostic((diagnostic + diagnostics.length - 1) % diagnostics.length);
    };
    window.addEventListener("toolwire:shortcut", key);
    return () => window.removeEventListener("toolwire:shortcut", key);
  }, [active, diagnostics, diagnostic, state]);

  const doc = useMemo(() => layoutText(answer?.input ?? ""), [answer?.input]);
  const marks = useMemo(() => {
    /** @type {Mark[]} */ const found = [];
    for (const span of reading?.spans ?? []) {
      found.push({ from: span.at[0], to: span.at[1], mark: `span-${span.kind}`, title: span.kind });
      if (part !== null && span.part === part) found.push({ from: span.at[0], to: span.at[1], mark: "lit" });
    }
    diagnostics.forEach((each, at) => {
      if (each.at) found.push({ from: each.at[0], to: Math.max(each.at[1], each.at[0] + 1), mark: at === diagnostic ? "loss-dropped chosen" : "loss-dropped", title: `${each.code}: ${each.detail}` });
    });
    return found;
  }, [answer, part, diagnostic]);

  const partAt = (/** @type {number | null} */ at) => {
    if (at === null) return null;
    const inside = (reading?.spans ?? []).filter((span) => span.at[0] <= at && at < span.at[1]);
    return inside.length ? (inside[inside.length - 1]?.part ?? null) : null;
  };
  const placeOf = (/** @type {number} */ at) => reading?.spans.find((span) => span.part === at)?.at;
  const sample = samples.find((candidate) => candidate.input === state.input);
  const candidates = reading?.candidates ?? [];
  const chosen = reading?.format ?? "";
  const options = [...candidates.map(({ name, title, calls, diagnostics: wrong }) => ({ value: name, title, label: html`<span>${name}</span>${calls ? html`<span class=${cx("badge", wrong ? "warning" : "ok-ground")}>${plural(calls, "call")}</span>` : null}` }))];
  if (chosen && !candidates.some(({ name }) => name === chosen)) options.unshift({ value: chosen, title: titleOf(meta, chosen), label: html`<span>${chosen}</span>` });

  return html`<div class="view formats" aria-busy=${String(!current)} ...${dropTarget(take, meta.limits.body_bytes)}>
    <h1 class="hidden-label">Text formats</h1>
    <div class="toolbar">
      <${Select}
        label="Sample"
        value=${sample?.id ?? ""}
        onChange=${(/** @type {string} */ id) => {
          const next = samples.find((candidate) => candidate.id === id);
          if (next) take(next.input);
        }}
        options=${[...(sample ? [] : [{ value: "", label: "your text" }]), ...samples.map(({ id, title }) => ({ value: id, label: title }))]}
      />
      <${FileButton} onText=${take} limit=${meta.limits.body_bytes} />
      <${Select} label="Format" value=${state.format} onChange=${(/** @type {string} */ format) => change({ format })} options=${[{ value: "", label: "Detect" }, ...meta.formats.map(({ name }) => ({ value: name, label: name }))]} />
      <span class="grow"></span>
      <${Switch} label="Begins in thoughts" title="The prompt already opened the model's reasoning" checked=${state.thinking} onChange=${(/** @type {boolean} */ thinking) => change({ thinking })} />
      <${Switch} label="Finished" title="The model ended by itself; off: it was cut at the token limit" checked=${state.finished} onChange=${(/** @type {boolean} */ finished) => change({ finished })} />
      <${ShareButton} onClick=${() => onShare(state)} />
    </div>
    <div class=${cx("busy-line", busy && "on")} aria-hidden="true"></div>
    <div class="comparison plain">
      <section class="pane source" aria-label="Model output">
        <header>
          <div class="pane-title"><h2>Model output</h2>
            <p class="sub">${reading && mode === "view" ? html`<span class="legend"><i class="span-call"></i>call <i class="span-name"></i>name <i class="span-arguments"></i>arguments <i class="span-reasoning"></i>reasoning</span>` : mode === "tools" ? "declared tools resolve what is ambiguous" : "as the model wrote it"}</p>
          </div>
          <${Choice} label="Show" value=${mode} onChange=${setMode} options=${[{ value: "view", label: "Read" }, { value: "edit", label: "Edit" }, { value: "tools", label: "Tools" }]} />
        </header>
        ${mode === "tools"
          ? html`<${Editor} key="tools" label="Declared tools" value=${state.tools} onInput=${(/** @type {string} */ tools) => change({ tools })} placeholder="Optional: the tools that the model was offered, in any wire." />`
          : mode === "edit" || !answer || !state.input
            ? html`<${Editor} key="edit" autofocus=${mode === "edit"} label="Model output" value=${state.input} onInput=${edit} placeholder="Paste what a model wrote: <tool_call>…" />`
            : html`<${Viewer} doc=${doc} label="Model output" marks=${marks} target=${target} onPoint=${(/** @type {number | null} */ at) => setPart(partAt(at))} onPick=${(/** @type {number} */ at) => document.getElementById(`part-${partAt(at)}`)?.focus()} />`}
      </section>
      <div class="targets">
        ${fault ? html`<${Problem} error=${fault} onPlace=${null} />` : null}
        ${reading && !fault
          ? html`<div class="targets-head">
                <p class="read-as">Read as <strong>${chosen || "plain text"}</strong>${reading.detected ? " · detected" : ""}${chosen ? html`<span class="format-title">${titleOf(meta, chosen)}</span>` : null}</p>
                ${options.length ? html`<${Choice} class="candidates" label="Read as" value=${chosen} onChange=${(/** @type {string} */ format) => change({ format })} options=${options} />` : null}
              </div>
              <div class="reading">
                ${diagnostics.length
                  ? html`<section class="diagnostics" aria-label="Diagnostics"><h2>Diagnostics <span class="sum">${diagnostics.length}</span></h2>
                      <ul>${diagnostics.slice(0, 200).map((each, at) => html`<li key=${at}><button type="button" class=${cx("loss", at === diagnostic && "chosen")} aria-pressed=${String(at === diagnostic)} onClick=${() => showDiagnostic(at)}><span class="action dropped">${each.code}</span><span class="what">${each.detail}</span></button></li>`)}</ul>
                    </section>`
                  : null}
                <ol class="parts" aria-label="Parts">
                  ${reading.parts.slice(0, 200).map(
                    (each, at) => html`<li key=${at}>
                      <button type="button" id=${`part-${at}`} class=${cx("part", each.kind, part === at && "lit-part")} onMouseEnter=${() => setPart(at)} onMouseLeave=${() => setPart(null)} onFocus=${() => setPart(at)} onClick=${() => setTarget(goTo(placeOf(at)))}>
                        <span class="part-head"><span class=${`part-kind span-${each.kind}`}>${each.kind}</span>${each.name ? html`<strong>${each.name}</strong>` : null}${each.state && each.state !== "complete" ? html`<span class="action dropped">${each.state}</span>` : null}${each.id ? html`<code class="soft">${each.id}</code>` : null}</span>
                        <span class=${cx("part-text", each.kind === "call" && "code")}>${clip(each.kind === "call" ? (each.arguments ?? each.text ?? "") : (each.text ?? ""))}</span>
                      </button>
                    </li>`,
                  )}
                  ${reading.parts.length ? null : html`<li class="sub">Nothing but empty text.</li>`}
                  ${reading.parts.length > 200 ? html`<li class="sub">and ${plural(reading.parts.length - 200, "part")} more</li>` : null}
                </ol>
              </div>`
          : fault || busy
            ? null
            : html`<div class="empty"><h2>Raw model output</h2><p>Paste what an open model wrote. Its format is detected, and each character belongs to a call, to reasoning or to text.</p></div>`}
      </div>
    </div>
  </div>`;
}

/** @param {Meta} meta @param {string} name */
function titleOf(meta, name) {
  return meta.formats.find((format) => format.name === name)?.title ?? name;
}

const LONGEST = 4000; // characters of a part; the source pane has all of it

/** @param {string} text */
function clip(text) {
  text = text.replace(/^\n+|\n+$/g, ""); // the empty lines are in the source pane
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}… (${text.length} characters)` : text;
}
