// @ts-check
// View 2: a stream, chunk by chunk.
//
// The server reads the stream once, with the chosen chunks, and answers all steps; moving between them asks nothing. Positions are
// bytes, because a stream may be cut inside a character; `byteMap` relates them to the characters that the page shows.
import { html, cx, count, plural, useState, useLayoutEffect, useMemo, useRef, Icon, Choice, Select, Problem, Editor, dropTarget } from "./core.js";
import { ask, useAnswer } from "./api.js";
import { layout, layoutText } from "./lines.js";
import { Viewer } from "./viewer.js";
import { goTo } from "./comparison.js";
import { FileButton, ShareButton, titlesOf } from "./translate.js";

/** @typedef {import("./api.js").Meta} Meta */
/** @typedef {import("./viewer.js").Mark} Mark */
/** @typedef {{ key: number | string, name: string, arguments: string, state: string }} Call */
/** @typedef {{ at: [number, number], text: string, events: { type: string, value: unknown }[], calls: Call[], targets: Record<string, string> }} Step */
/** @typedef {{ source: string, bytes: number, boundaries: [number, number][], steps: Step[], end: { state: string, message: string | null, at: number | null, step: number | null, open: string[] }, targets: Record<string, { losses: import("./api.js").Loss[], error: string | null }>, left_out: number }} Steps */
/** @typedef {{ input: string, source: string, chunks: string, every: number, end: number | null }} State */

/** Relate characters (UTF-16) and bytes (UTF-8) of a text. @param {string} text */
export function byteMap(text) {
  if (/^[\x00-\x7f]*$/.test(text)) return { byteOf: (/** @type {number} */ at) => at, charOf: (/** @type {number} */ at) => at, bytes: text.length };
  const offsets = new Uint32Array(text.length + 1);
  let bytes = 0;
  for (let at = 0; at < text.length; at++) {
    offsets[at] = bytes;
    const code = text.charCodeAt(at);
    // a surrogate pair has four bytes: counted two and two, so that both halves are before what follows
    bytes += code < 0x80 ? 1 : code < 0x800 || (code >= 0xd800 && code <= 0xdfff) ? 2 : 3;
  }
  offsets[text.length] = bytes;
  const charOf = (/** @type {number} */ at) => {
    let low = 0;
    let high = text.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (/** @type {number} */ (offsets[middle]) < at) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return { byteOf: (/** @type {number} */ at) => offsets[at] ?? bytes, charOf, bytes };
}

/** @param {{ meta: Meta, active: boolean, opened: Partial<State> | null, onShare: import("./api.js").OnShare }} props */
export function StreamsView({ meta, active, opened, onShare }) {
  const samples = meta.samples.filter((sample) => sample.view === "stream");
  const [state, setState] = useState(/** @type {State} */ ({ input: samples[0]?.input ?? "", source: "", chunks: "events", every: 16, end: null, ...opened }));
  const [editing, setEditing] = useState(false);
  const [index, setIndex] = useState(0);
  const [target, setTarget] = useState("");
  const titles = useMemo(() => titlesOf(meta), [meta]);
  const { answer, fault, busy, current } = useAnswer(
    state,
    editing ? 300 : 0,
    async ({ input, chunks, every, end, source: chosen }, signal, /** @type {(answer: { steps: Steps, input: string } | null) => void} */ show) => {
      const source = chosen || samples.find((candidate) => candidate.input === input)?.wire;
      /** @type {Steps} */ const steps = await ask("api/stream", { input, ...(source ? { source } : {}), ...(chunks === "bytes" ? { every } : {}), ...(end === null ? {} : { end }), targets: ["wires"] }, signal);
      show({ steps, input });
      // a cut shows the step at which it happens; else stay where we are
      setIndex((old) => (end !== null ? steps.steps.length - 1 : Math.min(old, steps.steps.length - 1)));
    },
  );

  const change = (/** @type {Partial<State>} */ part) => setState((old) => ({ ...old, ...part }));
  const edit = (/** @type {string} */ input) => {
    setEditing(true);
    change({ input, end: null });
  };
  const take = (/** @type {string} */ input) => {
    change({ input, source: "", end: null });
    setEditing(false);
    setIndex(0);
  };
  const steps = answer?.steps.steps ?? [];
  const last = Math.max(0, steps.length - 1);
  const move = (/** @type {number} */ next) => setIndex(Math.max(0, Math.min(last, next)));

  useLayoutEffect(() => {
    if (!active) return;
    const key = (/** @type {Event} */ event) => {
      const name = /** @type {CustomEvent<string>} */ (event).detail;
      if (name === "ArrowRight") setIndex((old) => Math.min(last, old + 1));
      else if (name === "ArrowLeft") setIndex((old) => Math.max(0, old - 1));
      else if (name === "Home") setIndex(0);
      else if (name === "End") setIndex(last);
      else if (name === "e") setEditing(true);
      else if (name === "s") onShare(state);
    };
    window.addEventListener("toolwire:shortcut", key);
    return () => window.removeEventListener("toolwire:shortcut", key);
  }, [active, last, state]);

  const sample = samples.find((candidate) => candidate.input === state.input);
  const ready = answer && !editing && !fault;
  return html`<div class="view streams" aria-busy=${String(!current)} ...${dropTarget(take, meta.limits.body_bytes)}>
    <h1 class="hidden-label">Streams</h1>
    <div class="toolbar">
      <${Select}
        label="Sample"
        value=${sample?.id ?? ""}
        onChange=${(/** @type {string} */ id) => {
          const next = samples.find((candidate) => candidate.id === id);
          if (!next) return;
          setIndex(0);
          setEditing(false);
          change({ input: next.input, source: "", end: null });
        }}
        options=${[...(sample ? [] : [{ value: "", label: "your stream" }]), ...samples.map(({ id, title }) => ({ value: id, label: title }))]}
      />
      <${FileButton} onText=${take} limit=${meta.limits.body_bytes} />
      <${Select} label="Source" value=${state.source} onChange=${(/** @type {string} */ source) => change({ source })} options=${[{ value: "", label: "Detect" }, ...meta.wires.filter(({ kinds }) => kinds?.includes("stream")).map(({ name, title }) => ({ value: name, label: title }))]} />
      <span class="grow"></span>
      <${Choice} label="Chunks" value=${state.chunks} onChange=${(/** @type {string} */ chunks) => change({ chunks })} options=${[{ value: "events", label: "One chunk per event" }, { value: "bytes", label: "Equal chunks" }]} />
      ${state.chunks === "bytes" ? html`<${Bytes} label="Bytes per chunk" value=${state.every} least=${1} most=${1_000_000} onChange=${(/** @type {number | null} */ every) => every && change({ every })} />` : null}
      <${Bytes} label="Cut at byte" value=${state.end} least=${0} most=${answer ? byteMap(answer.input).bytes : 0} onChange=${(/** @type {number | null} */ end) => change({ end })} />
      <${ShareButton} onClick=${() => onShare(state)} />
    </div>
    <div class=${cx("busy-line", busy && "on")} aria-hidden="true"></div>
    ${ready
      ? html`<${Stepper} answer=${answer.steps} input=${answer.input} index=${Math.min(index, last)} onMove=${move} cut=${state.end} onCut=${(/** @type {number | null} */ end) => change({ end })} target=${target} onTarget=${setTarget} titles=${titles} onEdit=${() => setEditing(true)} />`
      : html`<div class="comparison plain">
          <section class="pane source" aria-label="Stream">
            <header><div class="pane-title"><h2>Stream</h2><p class="sub">${fault ? "not understood" : "server-sent events, or lines of JSON"}</p></div>
              ${editing ? html`<div class="pane-tools"><button type="button" class="quiet" onClick=${() => setEditing(false)}><${Icon} name="check" />Done</button></div>` : null}
            </header>
            <${Editor} label="Stream" value=${state.input} onInput=${edit} placeholder="Paste the bytes of a streamed answer." autofocus=${editing} />
          </section>
          <div class="targets">${fault ? html`<${Problem} error=${fault} />` : answer ? html`<${Verdict} end=${answer.steps.end} />` : html`<div class="empty"><h2>Step through a stream</h2><p>Paste a recorded stream. Each chunk shows its bytes, its events, and what every other wire would send at that moment.</p></div>`}</div>
        </div>`}
  </div>`;
}

/** A number of bytes, or nothing. @param {{ label: string, value: number | null, least: number, most: number, onChange: (value: number | null) => void }} props */
function Bytes({ label, value, least, most, onChange }) {
  // what is typed but not entered yet: an answer that arrives meanwhile must not replace it
  const [draft, setDraft] = useState(/** @type {string | null} */ (null));
  return html`<label class="field">${label}<input
      class="bytes"
      type="number"
      inputmode="numeric"
      min=${least}
      max=${most}
      value=${draft ?? value ?? ""}
      placeholder="–"
      onInput=${(/** @type {any} */ event) => setDraft(event.currentTarget.value)}
      onChange=${(/** @type {any} */ event) => {
        const text = event.currentTarget.value;
        setDraft(null);
        const number = Math.round(Number(text));
        onChange(text === "" || !Number.isFinite(number) ? null : Math.max(least, Math.min(most, number)));
      }}
    /></label>`;
}

/** @type {Record<string, string>} */
const STATES = { complete: "fine", open: "open", truncated: "dropped", invalid: "dropped" };

/** @param {{ answer: Steps, input: string, index: number, onMove: (index: number) => void, cut: number | null, onCut: (at: number | null) => void, target: string, onTarget: (name: string) => void, titles: Record<string, string>, onEdit: () => void }} props */
function Stepper({ answer, input, index, onMove, cut, onCut, target, onTarget, titles, onEdit }) {
  const { steps, end } = answer;
  const map = useMemo(() => byteMap(input), [input]);
  const doc = useMemo(() => layoutText(input, true), [input]);
  const step = steps[index];
  const names = Object.keys(answer.targets);
  const current = names.includes(target) ? target : (names[0] ?? "");

  const [from, to] = step?.at ?? [0, 0];
  const marks = useMemo(() => {
    /** @type {Mark[]} */ const found = [{ from: map.charOf(from), to: map.charOf(to), mark: "lit" }];
    if (map.charOf(to) < input.length) found.push({ from: map.charOf(to), to: input.length + 1, mark: "future" });
    if (end.at !== null && end.state !== "complete") {
      const place = Math.min(map.charOf(end.at), Math.max(0, input.length - 1));
      found.push({ from: place, to: place + 1, mark: end.at >= map.bytes ? "cut-after" : "cut-here", title: end.message ?? "" });
    }
    return found;
  }, [answer, index, map]);
  const place = useMemo(() => goTo([map.charOf(from), map.charOf(to)]), [answer, index]);

  const calls = useMemo(() => {
    /** @type {Map<string | number, Call & { now: boolean }>} */ const found = new Map();
    steps.slice(0, index + 1).forEach((each, at) => each.calls.forEach((call) => found.set(call.key, { ...call, now: at === index })));
    for (const call of found.values()) call.now = Boolean(step?.calls.some(({ key }) => key === call.key));
    return [...found.values()];
  }, [answer, index]);

  const sent = useMemo(() => {
    const before = steps.slice(0, index).map((each) => each.targets[current] ?? "").join("");
    const now = step?.targets[current] ?? "";
    return { text: before + now, at: before.length, doc: layout(before + now).count ? layoutText(before + now, true) : layoutText("") };
  }, [answer, index, current]);
  const sentPlace = useMemo(() => goTo([Math.min(sent.at, Math.max(0, sent.text.length - 1)), sent.text.length]), [sent]);
  const outcome = answer.targets[current];

  return html`<div class="stepper">
    <div class="transport">
      <div class="buttons" role="group" aria-label="Steps">
        <button type="button" class="button" aria-label="First step" disabled=${index === 0} onClick=${() => onMove(0)}><${Icon} name="first" /></button>
        <button type="button" class="button" aria-label="Previous step" disabled=${index === 0} onClick=${() => onMove(index - 1)}><${Icon} name="prev" /></button>
        <button type="button" class="button" aria-label="Next step" disabled=${index >= steps.length - 1} onClick=${() => onMove(index + 1)}><${Icon} name="next" /></button>
        <button type="button" class="button" aria-label="Last step" disabled=${index >= steps.length - 1} onClick=${() => onMove(steps.length - 1)}><${Icon} name="last" /></button>
      </div>
      <div class="track">
        <input type="range" aria-label="Step" aria-valuetext=${`step ${index + 1} of ${steps.length}, bytes ${from} to ${to}`} min="0" max=${Math.max(0, steps.length - 1)} value=${index} onInput=${(/** @type {any} */ event) => onMove(Number(event.currentTarget.value))} />
        <${Strip} steps=${steps} bytes=${map.bytes} index=${index} broken=${end.state === "complete" ? null : end.at} onMove=${onMove} />
      </div>
      <p class="position" role="status"><strong>${count(index + 1)}</strong> of ${plural(steps.length, "chunk")}<span>bytes ${count(from)}–${count(to)} of ${count(map.bytes)}</span></p>
    </div>
    <${Verdict} end=${end}>
      ${end.step !== null && end.step !== index ? html`<button type="button" class="text-button" onClick=${() => onMove(end.step ?? 0)}>Go to chunk ${end.step + 1}</button>` : null}
      ${cut !== null ? html`<button type="button" class="text-button" onClick=${() => onCut(null)}>Undo the cut</button>` : null}
      ${answer.left_out ? html`<span class="sub">${plural(answer.left_out, "byte")} after the last step are not shown</span>` : null}
    </${Verdict}>
    <div class="step-panes">
      <section class="pane" aria-label="Bytes">
        <header><div class="pane-title"><h2>${titles[answer.source] ?? answer.source}</h2><p class="sub">bytes as they arrive · click one to cut there</p></div>
          <div class="pane-tools">
            ${step && to < map.bytes ? html`<button type="button" class="quiet" onClick=${() => onCut(to)}><${Icon} name="cut" />Cut after this chunk</button>` : null}
            <button type="button" class="quiet" onClick=${onEdit}><${Icon} name="edit" />Edit</button>
          </div>
        </header>
        <${Viewer} doc=${doc} label="Bytes of the stream" marks=${marks} target=${place} exact=${true} onPick=${(/** @type {number} */ at) => onCut(map.byteOf(at))} />
      </section>
      <section class="pane events-pane" aria-label="Events">
        <header><div class="pane-title"><h2>Events</h2><p class="sub">${step?.events.length ? plural(step.events.length, "event") + " from this chunk" : "none from this chunk"}</p></div></header>
        <div class="scroll" tabindex="0" role="group" aria-label="Events and arguments">
          <ol class="events">${(step?.events ?? []).slice(0, 100).map((event, at) => html`<li key=${at}><strong>${event.type}</strong><code>${brief(event.value)}</code></li>`)}</ol>
          ${calls.length ? html`<h3>Arguments so far</h3>` : null}
          ${calls.map(
            (call) => html`<article key=${call.key} class=${cx("call", call.now && "now")}>
              <p><strong>${call.name}</strong><span class=${cx("action", STATES[call.state] ?? "")}>${call.state}</span></p>
              <pre>${call.arguments || " "}</pre>
            </article>`,
          )}
        </div>
      </section>
      <section class="pane" aria-label="Translated stream">
        <header>
          <${Choice} tabs class="columns-choice" label="Translated stream" value=${current} onChange=${onTarget} options=${names.map((name) => ({ value: name, label: titles[name] ?? name }))} />
        </header>
        ${outcome?.error && outcome.error !== end.message ? html`<${Problem} error=${{ message: outcome.error }} />` : null}
        ${sent.text
          ? html`<${Viewer} doc=${sent.doc} label=${`Sent so far: ${titles[current] ?? current}`} marks=${[{ from: sent.at, to: sent.text.length, mark: "lit" }]} target=${sentPlace} />`
          : html`<div class="empty"><p>Nothing to send yet.</p></div>`}
      </section>
    </div>
  </div>`;
}

/** How the stream ends. @param {{ end: Steps["end"], children?: any }} props */
function Verdict({ end, children }) {
  const complete = end.state === "complete";
  const place = `${end.step === null ? "" : ` in chunk ${count(end.step + 1)}`}${end.at === null ? "" : `, at byte ${count(end.at)}`}`;
  return html`<div class=${cx("verdict", complete ? "fine" : "bad")} role="status">
    <${Icon} name=${complete ? "check" : "cut"} />
    <p>${complete ? "The whole stream is complete." : html`<strong>${end.state === "truncated" ? "Truncated" : "Invalid"}</strong>${place}${end.message ? `: ${end.message}` : ""}${end.open.length ? html`<span class="open-calls">. Still open: ${end.open.join(", ")}</span>` : null}`}</p>
    ${children}
  </div>`;
}

/** An event's value in a few words. @param {unknown} value */
function brief(value) {
  const text = value === null || value === undefined ? "" : JSON.stringify(value);
  return text.length > 400 ? `${text.slice(0, 400)}…` : text;
}

/** The chunks in proportion, drawn on a canvas: two thousand elements would be too many. @param {{ steps: Step[], bytes: number, index: number, broken: number | null, onMove: (index: number) => void }} props */
function Strip({ steps, bytes, index, broken, onMove }) {
  /** @type {{ current: HTMLCanvasElement | null }} */ const canvas = useRef(null);
  useLayoutEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const draw = () => {
      const ratio = window.devicePixelRatio || 1;
      const width = element.clientWidth;
      const height = element.clientHeight;
      element.width = width * ratio;
      element.height = height * ratio;
      const context = element.getContext("2d");
      if (!context || !bytes) return;
      context.scale(ratio, ratio);
      // a canvas takes no light-dark(): the computed colour of the element is one of the two
      const colour = (/** @type {string} */ name) => {
        element.style.color = `var(${name})`;
        return getComputedStyle(element).color;
      };
      /** @type {Record<string, string>} */ const colours = Object.fromEntries(["past", "now", "next", "cut"].map((name) => [name, colour(`--strip-${name}`)]));
      const scale = width / bytes;
      const gap = steps.length < width / 3 ? 1 : 0;
      steps.forEach((step, at) => {
        context.fillStyle = colours[at === index ? "now" : at < index ? "past" : "next"] ?? "";
        context.fillRect(step.at[0] * scale, 0, Math.max(at === index ? 2 : 1, (step.at[1] - step.at[0]) * scale - gap), height);
      });
      if (broken !== null) {
        context.fillStyle = colours["cut"] ?? "";
        context.fillRect(Math.min(width - 2, broken * scale), 0, 2, height);
      }
    };
    draw();
    const observer = new ResizeObserver(draw);
    observer.observe(element);
    const scheme = window.matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    const theme = new MutationObserver(draw);
    theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      observer.disconnect();
      theme.disconnect();
      scheme.removeEventListener("change", draw);
    };
  }, [steps, bytes, index, broken]);
  const click = (/** @type {MouseEvent} */ event) => {
    const element = canvas.current;
    if (!element) return;
    const at = (event.offsetX / element.clientWidth) * bytes;
    const found = steps.findIndex((step) => at < step.at[1]);
    onMove(found < 0 ? steps.length - 1 : found);
  };
  return html`<canvas ref=${canvas} class="strip-canvas" aria-hidden="true" onClick=${click}></canvas>`;
}
