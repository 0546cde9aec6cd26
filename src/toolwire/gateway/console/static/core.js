// @ts-check
// What every view uses: the template tag, hooks, and the small controls.
//
// Outside data reaches the page only as children and attribute values of templates, which become text nodes and attributes.
// No module sets HTML, and no attribute that runs a script comes from data.
import { h, render } from "./vendor/preact.mjs";
import { useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useId } from "./vendor/hooks.mjs";
import { htm } from "./vendor/htm.mjs";

/** @typedef {import("./vendor/preact.mjs").VNode} VNode */
/** @typedef {import("./vendor/preact.mjs").Child} Child */

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
const html = htm.bind(h);

/** Join the class names that are set. @param {...(string | false | null | undefined)} names */
function cx(...names) {
  return names.filter(Boolean).join(" ");
}

/** A value with thousands separated. @param {number} value */
function count(value) {
  return value.toLocaleString("en-GB");
}

/** @param {number} value @param {string} noun */
function plural(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : noun.endsWith("s") ? "es" : "s"}`;
}

/** The message of anything thrown. @param {unknown} error */
function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

/** Tell a screen reader, and show for a moment unless the page shows it anyway. @param {string} text @param {boolean} [shown] */
function announce(text, shown = true) {
  window.dispatchEvent(new CustomEvent("toolwire:announce", { detail: { text, shown } }));
}

/** @param {string} text @param {string} what */
async function copyText(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    announce(`${what} copied`);
  } catch {
    announce("The browser did not permit copying");
  }
}

/** Show messages of `announce`. */
function Announcer() {
  const [{ text, shown }, setMessage] = useState({ text: "", shown: false });
  useEffect(() => {
    let timer = 0;
    const show = (/** @type {Event} */ event) => {
      setMessage(/** @type {CustomEvent<{ text: string, shown: boolean }>} */ (event).detail);
      clearTimeout(timer);
      timer = setTimeout(() => setMessage({ text: "", shown: false }), 4000);
    };
    window.addEventListener("toolwire:announce", show);
    return () => window.removeEventListener("toolwire:announce", show);
  }, []);
  return html`<div class=${cx(text && !shown ? "hidden-label" : "announcer", text && "shown")} role="status" aria-live="polite">${text}</div>`;
}

/** Icons of 16 × 16, drawn with strokes. @type {Record<string, string>} */
const PATHS = {
  sun: "M8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6z",
  moon: "M13.5 9.6A5.7 5.7 0 0 1 6.4 2.5a5.7 5.7 0 1 0 7.1 7.1z",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  link: "M6.5 9.5l3-3M7 4.5l1.6-1.6a3 3 0 0 1 4.4 4.2L11.300 8.800M9 11.500l-1.600 1.600a3 3 0 0 1-4.400-4.200l1.700-1.700",
  edit: "M2.500 13.500l.6-2.900 7.600-7.600 2.300 2.300-7.600 7.600z",
  check: "M3 8.500l3.200 3.200L13 4.800",
  alert: "M8 2.200l6.200 11.300H1.800zM8 6.500v3.200M8 11.600v.2",
  drop: "M3.500 8h9",
  arrow: "M3 8h9.500M9 4.500L12.500 8 9 11.500",
  down: "M4 6l4 4 4-4",
  close: "M3.500 3.500l9 9M12.500 3.500l-9 9",
  prev: "M10 3.500L5.500 8l4.500 4.500",
  next: "M6 3.500L10.500 8 6 12.500",
  first: "M11.500 3.500L7 8l4.500 4.500M4.500 3.500v9",
  last: "M4.500 3.500L9 8l-4.500 4.500M11.500 3.500v9",
  cut: "M8 1.500v13M4.500 4l-3 4 3 4M11.500 4l3 4-3 4",
  file: "M3.500 1.500h6l3 3v10h-9zM9.500 1.500v3h3",
};

/** @param {{ name: string }} props */
function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false"><path d=${PATHS[name] ?? ""} /></svg>`;
}

/**
 * Buttons of which one is on. Arrow keys move; only the current one is in the order of Tab.
 * @param {{ label: string, value: string, options: { value: string, label: Child, title?: string, controls?: string, kind?: string }[], onChange: (value: string) => void, tabs?: boolean, class?: string }} props
 */
function Choice({ label, value, options, onChange, tabs, class: className }) {
  /** @type {{ current: HTMLElement | null }} */ const root = useRef(null);
  const current = Math.max(0, options.findIndex((option) => option.value === value));
  const move = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const target =
      event.key === "Home" ? 0 : event.key === "End" ? options.length - 1 : step ? (current + step + options.length) % options.length : -1;
    const option = options[target];
    if (!option) return;
    event.preventDefault();
    event.stopPropagation();
    onChange(option.value);
    /** @type {HTMLElement | undefined} */ (root.current?.children[target])?.focus();
  };
  return html`<div ref=${root} class=${cx(tabs ? "tabs" : "choice", className)} role=${tabs ? "tablist" : "radiogroup"} aria-label=${label} onKeyDown=${move}>
    ${options.map(
      (option, index) => html`<button
        key=${option.value}
        type="button"
        class=${cx(option.kind)}
        role=${tabs ? "tab" : "radio"}
        aria-selected=${tabs ? String(index === current) : null}
        aria-checked=${tabs ? null : String(index === current)}
        aria-controls=${option.controls ?? null}
        title=${option.title ?? null}
        tabindex=${index === current ? 0 : -1}
        onClick=${() => onChange(option.value)}
      >
        ${option.label}
      </button>`,
    )}
  </div>`;
}

/** @param {{ label: string, checked: boolean, onChange: (checked: boolean) => void, title?: string }} props */
function Switch({ label, checked, onChange, title }) {
  return html`<button type="button" class="switch" role="switch" aria-checked=${String(checked)} title=${title ?? null} onClick=${() => onChange(!checked)}>
    <span class="track" aria-hidden="true"></span>${label}
  </button>`;
}

/**
 * @param {{ label: string, value: string, onChange: (value: string) => void, options: { value: string, label: string }[], visible?: boolean }} props
 */
function Select({ label, value, onChange, options, visible = true }) {
  const id = useId();
  return html`<span class="field"
    ><label for=${id} class=${visible ? "" : "hidden-label"}>${label}</label
    ><select id=${id} value=${value} onChange=${(/** @type {any} */ event) => onChange(event.currentTarget.value)}>
      ${options.map((option) => html`<option key=${option.value} value=${option.value} selected=${option.value === value}>${option.label}</option>`)}
    </select></span
  >`;
}

/** An error of the server or of the input. @param {{ error: { message: string, hint?: string | null, pointer?: string | null, type?: string }, onPlace?: (() => void) | null }} props */
function Problem({ error, onPlace }) {
  return html`<div class="problem" role="alert">
    <${Icon} name="alert" />
    <div>
      <p class="message">${error.message}</p>
      ${error.hint ? html`<p class="hint">${error.hint}</p>` : null}
      ${onPlace ? html`<button type="button" class="quiet" onClick=${onPlace}>Show the place${error.pointer ? ` ${error.pointer}` : ""}</button>` : null}
    </div>
  </div>`;
}

/**
 * A text to edit; a dropped or pasted file becomes its text.
 * @param {{ label: string, value: string, onInput: (text: string) => void, placeholder?: string, autofocus?: boolean }} props
 */
function Editor({ label, value, onInput, placeholder, autofocus }) {
  /** @type {{ current: HTMLTextAreaElement | null }} */ const area = useRef(null);
  useEffect(() => {
    if (autofocus) area.current?.focus();
  }, []);
  return html`<textarea
    ref=${area}
    class="editor"
    aria-label=${label}
    spellcheck=${false}
    autocomplete="off"
    autocapitalize="off"
    placeholder=${placeholder ?? ""}
    value=${value}
    onInput=${(/** @type {any} */ event) => onInput(event.currentTarget.value)}
  ></textarea>`;
}

/** Handlers that read a dropped file or text. @param {(text: string, name: string) => void} onText @param {number} limit bytes */
function dropTarget(onText, limit) {
  return {
    onDragOver: (/** @type {DragEvent} */ event) => event.preventDefault(),
    onDrop: async (/** @type {DragEvent} */ event) => {
      event.preventDefault();
      const file = event.dataTransfer?.files[0];
      if (!file) {
        const text = event.dataTransfer?.getData("text/plain");
        if (text) onText(text, "");
      } else if (file.size > limit) {
        announce(`${file.name} is larger than the limit of ${count(limit)} bytes`);
      } else {
        onText(await file.text(), file.name);
      }
    },
  };
}

/** A modal dialog: the browser keeps the focus inside. @param {{ title: string, onClose: () => void, children?: any }} props */
function Dialog({ title, onClose, children }) {
  /** @type {{ current: HTMLDialogElement | null }} */ const box = useRef(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    box.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return html`<dialog
    ref=${box}
    aria-labelledby=${id}
    onClose=${onClose}
    onClick=${(/** @type {MouseEvent} */ event) => {
      if (event.target === box.current) onClose();
    }}
  >
    <div class="dialog-body">
      <header><h2 id=${id}>${title}</h2><button type="button" class="quiet" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button></header>
      ${children}
    </div>
  </dialog>`;
}

export { h, render, html, cx, count, plural, messageOf, announce, copyText, useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useId };
export { Announcer, Icon, Choice, Switch, Select, Problem, Editor, Dialog, dropTarget };
