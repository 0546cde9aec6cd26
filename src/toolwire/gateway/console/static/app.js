// @ts-check
// The shell: token, tabs, theme and shortcuts. Views other than the first are loaded when they are opened.
import { html, render, announce, useState, useEffect, useLayoutEffect, useRef, Announcer, Choice, Dialog, Icon, Problem, Switch } from "./core.js";
import { ask, faultOf, hasToken, takeToken } from "./api.js";
import { TranslateView } from "./translate.js";

/** @typedef {import("./api.js").Meta} Meta */

const VIEWS = [
  { value: "translate", label: "Translate" },
  { value: "streams", label: "Streams" },
  { value: "formats", label: "Text formats" },
  { value: "tools", label: "Tools" },
];

const SHORTCUTS = [
  ["1 – 4", "Translate, Streams, Text formats, Tools"],
  ["e", "Edit the source"],
  ["s", "Share the view as a link"],
  ["n, p", "Next, previous loss, finding or diagnostic"],
  ["← →", "Previous, next step of a stream"],
  ["↑ ↓ Home End", "Move in a document; ← → move within a line"],
  ["Enter", "Pin the element at the cursor, or cut the stream there"],
  ["Esc", "Close a dialog"],
  ["d", "Light or dark"],
  ["?", "This list"],
];

/** Loaded when first opened. @type {Record<string, () => Promise<any>>} */
const LOADERS = {
  streams: () => import("./streams.js").then((module) => module.StreamsView),
  formats: () => import("./formats.js").then((module) => module.FormatsView),
  tools: () => import("./tools.js").then((module) => module.ToolsView),
};

function readRoute() {
  const [, name = "", query = ""] = /^#\/([a-z]*)(?:\?(.*))?$/s.exec(location.hash) ?? [];
  return { view: VIEWS.some(({ value }) => value === name) ? name : "translate", shared: new URLSearchParams(query).get("s") };
}

/** @typedef {{ state: any, serial: number }} Opened  a serial is a new view, with the state of a link */
let serial = 0;

function App() {
  const [ready, setReady] = useState(hasToken());
  const [meta, setMeta] = useState(/** @type {Meta | null} */ (null));
  const [fault, setFault] = useState(/** @type {import("./api.js").Fault | null} */ (null));
  const [view, setView] = useState(readRoute().view);
  const [opened, setOpened] = useState(/** @type {Record<string, Opened>} */ ({}));
  const [loaded, setLoaded] = useState(/** @type {Record<string, any>} */ ({ translate: TranslateView }));
  const [helping, setHelping] = useState(false);
  const [sharing, setSharing] = useState(/** @type {any} */ (null)); // the dialog
  const [theme, setTheme] = useTheme();
  const [keys, setKeys] = useState(localStorage.getItem("toolwire-keys") !== "off");
  const loading = useRef(new Set());

  useEffect(() => {
    const lost = () => setReady(false);
    window.addEventListener("toolwire:lost-token", lost);
    return () => window.removeEventListener("toolwire:lost-token", lost);
  }, []);

  useEffect(() => {
    if (!ready) return;
    ask("api/meta").then(setMeta, (error) => setFault(faultOf(error)));
  }, [ready]);

  useEffect(() => {
    const read = () => {
      if (new URLSearchParams(location.hash.slice(1)).has("token")) {
        takeToken();
        setFault(null);
        setReady(true);
      }
      const route = readRoute();
      setView(route.view);
      if (route.shared) {
        import("./share.js")
          .then(({ decodeState }) => decodeState(route.shared ?? ""))
          .then((state) => open(route.view, checked(state)))
          .catch((error) => announce(`The link cannot be opened: ${faultOf(error).message}`));
      }
    };
    read();
    window.addEventListener("hashchange", read);
    return () => window.removeEventListener("hashchange", read);
  }, []);

  useEffect(() => {
    document.title = `${VIEWS.find(({ value }) => value === view)?.label} · toolwire console`;
    const loader = LOADERS[view];
    if (!loader || loaded[view] || loading.current.has(view)) return;
    loading.current.add(view);
    loader().then(
      (component) => setLoaded((old) => ({ ...old, [view]: component })),
      () => setFault({ type: "NetworkError", message: "The console's server does not answer.", hint: "Start `toolwire console` again and open the address that it prints." }),
    );
  }, [view]);

  const open = (/** @type {string} */ name, /** @type {any} */ state) => {
    setOpened((old) => ({ ...old, [name]: { state, serial: ++serial } }));
    go(name);
  };
  const go = (/** @type {string} */ name) => {
    if (readRoute().view !== name) location.hash = `#/${name}`;
    setView(name);
  };

  const share = (/** @type {string} */ name, /** @type {import("./api.js").Shared} */ state) => {
    import("./share.js").then(
      ({ ShareDialog }) => setSharing(html`<${ShareDialog} view=${name} state=${state} onClose=${() => setSharing(null)} />`),
      () => announce("The console's server does not answer"),
    );
  };

  useLayoutEffect(() => {
    const press = (/** @type {KeyboardEvent} */ event) => {
      const target = event.target;
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (target instanceof HTMLElement && target.matches("input:not([type=range]), textarea, select")) return;
      if (document.querySelector("dialog[open]")) return;
      if (event.key === "?") setHelping(true);
      else if (!keys) return;
      else if (/^[1-4]$/.test(event.key)) go(VIEWS[Number(event.key) - 1]?.value ?? view);
      else if (event.key === "d") setTheme(theme === "dark" ? "light" : "dark");
      else window.dispatchEvent(new CustomEvent("toolwire:shortcut", { detail: event.key }));
      if ("?1234edsnp".includes(event.key)) event.preventDefault();
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [keys, theme, view]);

  return html`<div class="shell">
    <a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => {
      event.preventDefault();
      document.getElementById("main")?.focus();
    }}>Skip to the content</a>
    <header class="top">
      <span class="brand"><span class="mark" aria-hidden="true"></span>toolwire<span class="soft">console</span></span>
      <nav aria-label="Views"><${Choice} tabs class="views" label="Views" value=${view} onChange=${go} options=${VIEWS.map((item) => (ready && meta ? { ...item, controls: `view-${item.value}` } : item))} /></nav>
      <div class="top-tools">
        <button type="button" class="quiet" aria-label=${theme === "dark" ? "Use light colours" : "Use dark colours"} title="Light or dark (d)" onClick=${() => setTheme(theme === "dark" ? "light" : "dark")}><${Icon} name=${theme === "dark" ? "sun" : "moon"} /></button>
        <button type="button" class="quiet key" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick=${() => setHelping(true)}>?</button>
      </div>
    </header>
    <main id="main" tabindex="-1">
      ${ready
        ? fault
          ? html`<div class="screen"><${Problem} error=${fault} /><button type="button" class="button" onClick=${() => location.reload()}>Try again</button></div>`
          : VIEWS.map(({ value, label }) => {
              const View = loaded[value];
              if (!meta || !View) return value === view ? html`<div key=${value} id=${`view-${value}`} role="tabpanel" aria-label=${label} class="screen"><p class="sub" role="status">Loading…</p></div>` : null;
              return html`<div key=${value} id=${`view-${value}`} class="panel" role="tabpanel" aria-label=${label} hidden=${value !== view}>
                <${View} key=${opened[value]?.serial ?? 0} meta=${meta} active=${value === view} opened=${opened[value]?.state ?? null} onShare=${(/** @type {import("./api.js").Shared} */ state) => share(value, state)} onOpen=${(/** @type {string} */ name, /** @type {string} */ input) => open(name, { input })} />
              </div>`;
            })
        : html`<${LostToken} />`}
    </main>
    ${helping
      ? html`<${Dialog} title="Keyboard" onClose=${() => setHelping(false)}>
          <dl class="shortcuts">${SHORTCUTS.map(([key, what]) => html`<div key=${key}><dt>${key}</dt><dd>${what}</dd></div>`)}</dl>
          <${Switch}
            label="Single-key shortcuts"
            checked=${keys}
            onChange=${(/** @type {boolean} */ on) => {
              localStorage.setItem("toolwire-keys", on ? "on" : "off");
              setKeys(on);
            }}
          />
        </${Dialog}>`
      : null}
    ${sharing}
    <${Announcer} />
  </div>`;
}

const isText = (/** @type {unknown} */ value) => typeof value === "string";
const isSwitch = (/** @type {unknown} */ value) => typeof value === "boolean";
/** @param {string[]} values */
const isOneOf = (...values) => (/** @type {any} */ value) => values.includes(value);
/** @param {number} least */
const isFrom = (least) => (/** @type {any} */ value) => Number.isSafeInteger(value) && value >= least;
/** The fields of all views. @type {Record<string, (value: unknown) => boolean>} */
const FIELDS = {
  input: isText,
  source: isText,
  kind: isText,
  format: isText,
  tools: isText,
  strict: isSwitch,
  thinking: isSwitch,
  finished: isSwitch,
  family: isOneOf("wires", "formats", "all"),
  chunks: isOneOf("events", "bytes"),
  every: isFrom(1),
  end: isFrom(0),
};

/** Keep only what a view may get from a link, which anybody can write. @param {Record<string, unknown>} state */
function checked(state) {
  return { input: "", ...Object.fromEntries(Object.entries(FIELDS).flatMap(([name, isValid]) => (isValid(state[name]) ? [[name, state[name]]] : []))) };
}

function LostToken() {
  return html`<div class="screen lost">
    <h1>This page has no key to its server</h1>
    <p>Each start of the console prints an address with a new token. This tab has none, or the server was started again.</p>
    <ol>
      <li>Look for the last address in the terminal, such as <code>http://127.0.0.1:PORT/#token=…</code>, and open it in this browser.</li>
      <li>If no console is running, start one: <code>toolwire console</code></li>
    </ol>
    <p class="note">The token stays in this tab. A new tab needs the address again.</p>
  </div>`;
}

/** @returns {[string, (theme: string) => void]} */
function useTheme() {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const [chosen, setChosen] = useState(localStorage.getItem("toolwire-theme"));
  const [dark, setDark] = useState(system.matches);
  useEffect(() => {
    const change = () => setDark(system.matches);
    system.addEventListener("change", change);
    return () => system.removeEventListener("change", change);
  }, []);
  useEffect(() => {
    if (chosen) document.documentElement.dataset["theme"] = chosen;
  }, [chosen]);
  return [
    chosen ?? (dark ? "dark" : "light"),
    (theme) => {
      localStorage.setItem("toolwire-theme", theme);
      setChosen(theme);
    },
  ];
}

const root = document.getElementById("app");
const { theme } = { theme: localStorage.getItem("toolwire-theme") };
if (theme) document.documentElement.dataset["theme"] = theme;
takeToken();
if (root) {
  root.textContent = "";
  render(html`<${App} />`, root);
}
