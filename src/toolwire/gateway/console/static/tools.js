// @ts-check
// View 4: tools against providers, with what each provider would refuse or change.
import { html, cx, count, plural, useState, useEffect, useLayoutEffect, useMemo, useRef, Icon, Select, Problem, Editor, dropTarget } from "./core.js";
import { ask, useAnswer } from "./api.js";
import { layout } from "./lines.js";
import { Viewer } from "./viewer.js";
import { goTo } from "./comparison.js";
import { FileButton, ShareButton, titlesOf } from "./translate.js";

/** @typedef {import("./api.js").Meta} Meta */
/** @typedef {import("./api.js").At} At */
/** @typedef {import("./viewer.js").Mark} Mark */
/** @typedef {{ rule: string, tool: number | null, severity: string, message: string, hint?: string | null, pointer?: string | null, at: At | null }} Finding */
/** @typedef {{ pointer: string, change: string, before: string | null, after: string | null, before_at: At | null, after_at: At | null }} Difference */
/** @typedef {{ tool: number, text: string | null, differences: Difference[], losses: import("./api.js").Loss[], error: import("./api.js").Fault | null }} Lowered */
/** @typedef {{ name: string, wire: string, tokens: number, findings: number[], tools: Lowered[] }} Provider */
/** @typedef {{ source: string, text: string, tools: { name: string, at: At | null, tokens: Record<string, number> }[], findings: Finding[], providers: Provider[] }} Audit */
/** @typedef {{ input: string, source: string }} State */
/** @typedef {{ worst: string, count: number, broken: boolean }} Cell */

const HEIGHT = 36; // pixels of a row of the matrix, as --matrix-row in the style sheet

/** @type {Record<string, number>} */
const RANK = { error: 3, warning: 2, info: 1 };

/** @param {{ meta: Meta, active: boolean, opened: Partial<State> | null, onShare: import("./api.js").OnShare }} props */
export function ToolsView({ meta, active, opened, onShare }) {
  const samples = meta.samples.filter((sample) => sample.view === "tools");
  const [state, setState] = useState(/** @type {State} */ ({ input: samples[0]?.input ?? "", source: "", ...opened }));
  const [editing, setEditing] = useState(false);
  const [cell, setCell] = useState({ tool: 0, provider: 0 });
  const [finding, setFinding] = useState(-1);
  const [target, setTarget] = useState(/** @type {import("./viewer.js").Target | null} */ (null));
  const [loweredTarget, setLoweredTarget] = useState(/** @type {import("./viewer.js").Target | null} */ (null));
  const [details, setDetails] = useState(/** @type {Record<string, Lowered>} */ ({}));
  const titles = useMemo(() => titlesOf(meta), [meta]);
  const { answer: audit, fault, settled, busy, current } = useAnswer(
    state,
    editing ? 350 : 0,
    async ({ input, source }, signal, /** @type {(answer: Audit | null) => void} */ show) => {
      /** @type {Audit} */ const found = await ask("api/tools", { input, ...(source ? { source } : {}) }, signal);
      show(found);
      setDetails({});
      setFinding(-1);
      setCell((old) => (old.tool < found.tools.length && old.provider < found.providers.length ? old : { tool: 0, provider: 0 }));
    },
  );

  const provider = audit?.providers[cell.provider] ?? null;
  const key = `${cell.tool}/${provider?.name}`;
  const lowered = provider?.tools.find((each) => each.tool === cell.tool) ?? details[key] ?? null;

  // with many tools, the lowered declarations come one by one
  useEffect(() => {
    if (!audit || !provider || lowered || !audit.tools.length) return;
    const control = new AbortController();
    askDetail(settled, audit, cell.tool, provider.name, control.signal).then(
      (one) => one && setDetails((old) => ({ ...old, [key]: one })),
      () => {}, // the pane stays empty; the audit itself has succeeded
    );
    return () => control.abort();
  }, [audit, key]);

  const findings = useMemo(() => (audit && provider ? findingsOf(audit, provider) : []).filter((each) => each.tool === null || each.tool === cell.tool), [audit, cell]);
  const differences = lowered?.differences ?? [];
  const showFinding = (/** @type {number} */ next) => {
    const found = findings[next];
    if (!found) return;
    setFinding(next);
    if (found.at) setTarget(goTo(found.at));
  };
  const showDifference = (/** @type {Difference} */ found) => {
    setFinding(-1);
    if (found.before_at) setTarget(goTo(found.before_at));
    if (found.after_at) setLoweredTarget(goTo(found.after_at));
  };
  const choose = (/** @type {{ tool: number, provider: number }} */ next) => {
    setCell(next);
    setFinding(-1);
    const at = audit?.tools[next.tool]?.at;
    if (at && next.tool !== cell.tool) setTarget(goTo(at));
  };

  useLayoutEffect(() => {
    if (!active) return;
    const press = (/** @type {Event} */ event) => {
      const name = /** @type {CustomEvent<string>} */ (event).detail;
      if (name === "e") setEditing(true);
      if (name === "s") onShare(state);
      if (name === "n" && findings.length) showFinding((finding + 1) % findings.length);
      if (name === "p" && findings.length) showFinding((finding + findings.length - 1) % findings.length);
    };
    window.addEventListener("toolwire:shortcut", press);
    return () => window.removeEventListener("toolwire:shortcut", press);
  }, [active, findings, finding, state]);

  const change = (/** @type {Partial<State>} */ next) => setState((old) => ({ ...old, ...next }));
  const edit = (/** @type {string} */ input) => {
    setEditing(true);
    change({ input });
  };
  const take = (/** @type {string} */ input) => {
    change({ input, source: "" });
    setEditing(false);
  };
  const doc = useMemo(() => layout(audit?.text ?? ""), [audit?.text]);
  const marks = useMemo(() => {
    /** @type {Mark[]} */ const found = [];
    const at = audit?.tools[cell.tool]?.at;
    if (at && (audit?.tools.length ?? 0) > 1) found.push({ from: at[0], to: at[1], mark: "current" });
    findings.forEach((each, index) => {
      if (each.at) found.push({ from: each.at[0], to: Math.max(each.at[1], each.at[0] + 1), mark: `${each.severity === "error" ? "loss-dropped" : each.severity === "warning" ? "loss-weakened" : "loss-moved"}`, title: each.message });
      if (each.at && index === finding) found.push({ from: each.at[0], to: Math.max(each.at[1], each.at[0] + 1), mark: "chosen" });
    });
    for (const each of differences) if (each.before_at) found.push({ from: each.before_at[0], to: each.before_at[1], mark: each.change === "removed" ? "removed" : "changed", title: `${each.change} for ${provider?.name}` });
    return found;
  }, [audit, cell, finding, lowered]);
  const loweredDoc = useMemo(() => layout(lowered?.text ?? ""), [lowered?.text]);
  const loweredMarks = useMemo(
    () => differences.flatMap((each) => (each.after_at ? [{ from: each.after_at[0], to: each.after_at[1], mark: each.change === "added" ? "added" : "changed", title: `${each.change}: ${each.pointer}` }] : [])),
    [lowered],
  );
  const sample = samples.find((candidate) => candidate.input === state.input);
  const tool = audit?.tools[cell.tool];

  return html`<div class="view tools" aria-busy=${String(!current)} ...${dropTarget(take, meta.limits.body_bytes)}>
    <h1 class="hidden-label">Tools</h1>
    <div class="toolbar">
      <${Select}
        label="Sample"
        value=${sample?.id ?? ""}
        onChange=${(/** @type {string} */ id) => {
          const next = samples.find((candidate) => candidate.id === id);
          if (next) take(next.input);
        }}
        options=${[...(sample ? [] : [{ value: "", label: "your tools" }]), ...samples.map(({ id, title }) => ({ value: id, label: title }))]}
      />
      <${FileButton} onText=${take} limit=${meta.limits.body_bytes} />
      <${Select} label="Source" value=${state.source} onChange=${(/** @type {string} */ source) => change({ source })} options=${[{ value: "", label: "Detect" }, ...meta.wires.map(({ name, title }) => ({ value: name, label: title }))]} />
      <span class="grow"></span>
      ${audit && !fault ? html`<p class="sub" role="status">${plural(audit.tools.length, "tool")} · ${plural(audit.providers.reduce((sum, each) => sum + each.findings.length, 0), "finding")}</p>` : null}
      <${ShareButton} onClick=${() => onShare(state)} />
    </div>
    <div class=${cx("busy-line", busy && "on")} aria-hidden="true"></div>
    <div class="comparison plain">
      <section class="pane source" aria-label="Tools document">
        <header>
          <div class="pane-title"><h2>${audit && !fault ? (titles[audit.source] ?? audit.source) : "Tools"}</h2><p class="sub">${fault ? "not understood" : tool && !editing ? tool.name : "changes are checked as you type"}</p></div>
          <div class="pane-tools"><button type="button" class="quiet" aria-pressed=${String(editing)} onClick=${() => setEditing(!editing)}><${Icon} name=${editing ? "check" : "edit"} />${editing ? "Done" : "Edit"}</button></div>
        </header>
        ${editing || !audit || fault
          ? html`<${Editor} label="Tools document" value=${state.input} onInput=${edit} placeholder="Paste tools: of any wire, a list of an MCP server, or a request with tools." autofocus=${editing} />`
          : html`<${Viewer} doc=${doc} label="Tools document" marks=${marks} target=${target} onPick=${(/** @type {number} */ at) => {
              const found = audit.tools.findIndex((each) => each.at && each.at[0] <= at && at < each.at[1]);
              if (found >= 0) setCell({ ...cell, tool: found });
            }} />`}
      </section>
      <div class="targets tool-targets">
        ${fault ? html`<${Problem} error=${fault} />` : null}
        ${audit && !fault && !audit.tools.length ? html`<div class="empty"><h2>No tools</h2><p>The document declares none.</p></div>` : null}
        ${!audit && !fault && !busy ? html`<div class="empty"><h2>Tools against providers</h2><p>Paste tool declarations. Each provider's limits are checked, and what it would receive is shown beside the original.</p></div>` : null}
        ${audit && !fault && audit.tools.length
          ? html`<${Matrix} audit=${audit} titles=${titles} cell=${cell} onCell=${choose} />
              <div class="detail">
                <section class="losses findings" aria-label="Findings">
                  <header><h2>${tool?.name} <span class="sum">on ${provider?.name}</span></h2></header>
                  <div class="findings-list">
                    ${lowered?.error ? html`<${Problem} error=${lowered.error} />` : null}
                    ${findings.length || differences.length ? null : html`<p class="sub calm">Sent as it is: nothing to report.</p>`}
                    ${findings.length ? html`<ul>${findings.slice(0, 100).map(
                      (each, index) => html`<li key=${index}>
                        <button type="button" class=${cx("loss", index === finding && "chosen")} aria-pressed=${String(index === finding)} onClick=${() => showFinding(index)}>
                          <span class=${`action ${each.severity}`}>${each.severity}</span>
                          <span class="what">${each.message}${each.hint ? html`<span class="fix">${each.hint}</span>` : null}</span>
                          <span class="where"><code>${each.rule}</code>${each.pointer ? html`<code>${each.pointer}</code>` : null}${each.tool === null ? html`<span>all tools</span>` : null}</span>
                        </button>
                      </li>`,
                    )}</ul>` : null}
                    ${differences.length ? html`<h3>Differences <span class="sum">${differences.length}</span></h3>
                      <ul>${differences.slice(0, 100).map(
                        (each, index) => html`<li key=${index}>
                          <button type="button" class="loss" onClick=${() => showDifference(each)}>
                            <span class=${`action ${each.change === "removed" ? "dropped" : each.change === "added" ? "fine" : "rewritten"}`}>${each.change}</span>
                            <span class="what"><code>${each.pointer || "/"}</code></span>
                            <span class="where change">${each.before === null ? null : html`<del>${short(each.before)}</del>`}${each.after === null ? null : html`<ins>${short(each.after)}</ins>`}</span>
                          </button>
                        </li>`,
                      )}</ul>` : null}
                  </div>
                </section>
                <section class="pane" aria-label="Lowered declaration">
                  <header><div class="pane-title"><h2>What ${provider?.name} receives</h2><p class="sub">${lowered?.text ? (differences.length ? plural(differences.length, "difference") : "as written") : lowered ? "nothing" : "…"}</p></div></header>
                  ${lowered?.text ? html`<${Viewer} doc=${loweredDoc} label=${`Lowered for ${provider?.name}`} marks=${loweredMarks} target=${loweredTarget} />` : null}
                </section>
              </div>`
          : null}
      </div>
    </div>
  </div>`;
}

/**
 * The lowered declaration of one tool: of a list with this tool alone, which is much quicker than thousands, else of the document.
 * @param {State} state @param {Audit} audit @param {number} tool @param {string} provider @param {AbortSignal} signal @returns {Promise<Lowered | undefined>}
 */
async function askDetail(state, audit, tool, provider, signal) {
  const at = audit.tools[tool]?.at;
  if (at) {
    try {
      /** @type {Audit} */ const found = await ask("api/tools", { input: `[${audit.text.slice(at[0], at[1])}]`, source: audit.source, providers: [provider] }, signal);
      const one = found.providers[0]?.tools[0];
      const move = (/** @type {At | null} */ place) => /** @type {At | null} */ (place && [place[0] + at[0] - 1, place[1] + at[0] - 1]);
      if (one && found.tools.length === 1) return { ...one, tool, differences: one.differences.map((each) => ({ ...each, before_at: move(each.before_at) })) };
    } catch (error) {
      if (signal.aborted) throw error; // else its wire has no plain list of tools
    }
  }
  /** @type {Audit} */ const found = await ask("api/tools", { input: state.input, ...(state.source ? { source: state.source } : {}), providers: [provider], details: [tool] }, signal);
  return found.providers[0]?.tools.find((each) => each.tool === tool);
}

/** @param {Audit} audit @param {Provider} provider @returns {Finding[]} */
function findingsOf(audit, provider) {
  return provider.findings.map((number) => /** @type {Finding} */ (audit.findings[number]));
}

/** @param {string} text */
function short(text) {
  return text.length > 120 ? `${text.slice(0, 120)}…` : text;
}

/** @param {{ audit: Audit, titles: Record<string, string>, cell: { tool: number, provider: number }, onCell: (cell: { tool: number, provider: number }) => void }} props */
function Matrix({ audit, titles, cell, onCell }) {
  /** @type {{ current: HTMLElement | null }} */ const pane = useRef(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(0);
  const focusing = useRef(false);
  const columns = audit.providers.length;

  const cells = useMemo(() => {
    /** @type {Map<number, Cell>[]} */ const found = audit.providers.map((provider) => {
      /** @type {Map<number, Cell>} */ const map = new Map();
      const add = (/** @type {number} */ tool, /** @type {string} */ severity) => {
        const old = map.get(tool) ?? { worst: "", count: 0, broken: false };
        map.set(tool, { ...old, count: old.count + 1, worst: (RANK[severity] ?? 0) > (RANK[old.worst] ?? 0) ? severity : old.worst });
      };
      for (const finding of findingsOf(audit, provider)) if (finding.tool !== null) add(finding.tool, finding.severity);
      for (const lowered of provider.tools) if (lowered.error) add(lowered.tool, "error");
      return map;
    });
    return found;
  }, [audit]);
  const shared = audit.providers.map((provider) => findingsOf(audit, provider).filter((finding) => finding.tool === null).length);

  useLayoutEffect(() => {
    const element = /** @type {HTMLElement} */ (pane.current);
    const measure = () => setHeight(element.clientHeight);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    const element = pane.current;
    if (!element) return;
    const y = cell.tool * HEIGHT;
    const view = element.clientHeight - 44; // below the heads
    if (y < element.scrollTop) element.scrollTop = y;
    else if (y + HEIGHT > element.scrollTop + view) element.scrollTop = y + HEIGHT - view;
    if (focusing.current) {
      focusing.current = false;
      setTimeout(() => /** @type {HTMLElement | null} */ (element.querySelector('[tabindex="0"][role="gridcell"]'))?.focus({ preventScroll: true }), 0);
    }
  }, [cell]);

  const press = (/** @type {KeyboardEvent} */ event) => {
    const page = Math.max(1, Math.floor(height / HEIGHT) - 2);
    /** @type {Record<string, [number, number]>} */ const steps = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], PageDown: [page, 0], PageUp: [-page, 0], Home: [-audit.tools.length, 0], End: [audit.tools.length, 0] };
    const step = steps[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    focusing.current = true;
    onCell({ tool: Math.max(0, Math.min(audit.tools.length - 1, cell.tool + step[0])), provider: Math.max(0, Math.min(columns - 1, cell.provider + step[1])) });
  };

  const start = Math.max(0, Math.floor(top / HEIGHT) - 3);
  const stop = Math.min(audit.tools.length, Math.ceil((top + height) / HEIGHT) + 3);
  const inSight = cell.tool >= start && cell.tool < stop;
  const rows = [];
  for (let tool = start; tool < stop; tool++) {
    const { name, tokens } = /** @type {Audit["tools"][number]} */ (audit.tools[tool]);
    rows.push(html`<div key=${tool} class=${cx("matrix-row", tool === cell.tool && "chosen-row")} role="row" aria-rowindex=${tool + 2}>
      <span class="matrix-name" role="rowheader" title=${name}>${name}</span>
      ${audit.providers.map((provider, index) => {
        const found = cells[index]?.get(tool);
        const now = tool === cell.tool && index === cell.provider;
        const cost = tokens[provider.wire] ?? tokens[provider.name];
        return html`<span
          key=${provider.name}
          class=${cx("matrix-cell", found ? found.worst : "clean", now && "chosen")}
          role="gridcell"
          tabindex=${now || (!inSight && tool === start && index === 0) ? 0 : -1}
          aria-selected=${String(now)}
          data-cell=${`${name}/${provider.name}`}
          onClick=${() => onCell({ tool, provider: index })}
        >
          ${found ? html`<span class=${cx("badge", found.worst)}>${found.count}<span class="hidden-label"> ${found.count === 1 ? "finding" : "findings"}, worst: ${found.worst}</span></span>` : html`<${Icon} name="check" /><span class="hidden-label">no findings</span>`}
          ${cost === undefined ? null : html`<span class="tokens">${count(cost)}<span class="hidden-label"> tokens</span></span>`}
        </span>`;
      })}
    </div>`);
  }
  return html`<div
    class="matrix"
    ref=${pane}
    role="grid"
    aria-label="Tools and providers"
    aria-rowcount=${audit.tools.length + 1}
    aria-colcount=${columns + 1}
    onScroll=${(/** @type {any} */ event) => setTop(event.currentTarget.scrollTop)}
    onKeyDown=${press}
    style=${{ "--columns": String(columns) }}
  >
    <div class="matrix-row matrix-head" role="row" aria-rowindex="1">
      <span role="columnheader" class="matrix-name">Tool</span>
      ${audit.providers.map((provider, index) => html`<span key=${provider.name} role="columnheader" class="matrix-cell" title=${titles[provider.wire] ?? provider.wire}><span class="provider-name">${provider.name}</span><span class="tokens">${count(provider.tokens)} tok${shared[index] ? html` <span class="badge warning" title="findings for the whole list">${shared[index]}</span>` : null}</span></span>`)}
    </div>
    <div class="matrix-body" role="rowgroup" style=${{ height: `${audit.tools.length * HEIGHT}px` }}><div role="presentation" style=${{ transform: `translateY(${start * HEIGHT}px)` }}>${rows}</div></div>
  </div>`;
}
