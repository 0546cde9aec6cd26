// @ts-check
// The state of a view in a link. Secrets are replaced in the text before it is encoded.
import { html, count, copyText, messageOf, useState, useEffect, Dialog, Icon } from "./core.js";

export const LONGEST_LINK = 200_000; // chat programs and mail clients cut or refuse longer links

const LONGEST_STATE = 32 << 20; // bytes after decompression: a small link must not fill the memory

const SHORT = 300; // bytes; compression makes shorter texts longer

/** @param {Uint8Array} bytes */
function toBase64(bytes) {
  let binary = "";
  for (let at = 0; at < bytes.length; at += 8192) binary += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(binary).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

/** @param {string} text */
function fromBase64(text) {
  const binary = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}

/** @param {object} state @returns {Promise<string>} */
export async function encodeState(state) {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  if (bytes.length < SHORT) return `j${toBase64(bytes)}`;
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  return `z${toBase64(new Uint8Array(await new Response(stream).arrayBuffer()))}`;
}

/** @param {string} text @returns {Promise<Record<string, unknown>>} */
export async function decodeState(text) {
  const bytes = fromBase64(text.slice(1));
  let json = "";
  if (text[0] === "j") json = new TextDecoder().decode(bytes);
  else if (text[0] === "z") {
    const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
    const decoder = new TextDecoder();
    let size = 0;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      size += part.value.length;
      if (size > LONGEST_STATE) throw new Error("The link contains more than this page accepts.");
      json += decoder.decode(part.value, { stream: true });
    }
  } else throw new Error("This link is not of the console, or was cut.");
  const state = JSON.parse(json);
  if (typeof state !== "object" || state === null || Array.isArray(state)) throw new Error("This link is not of the console.");
  return state;
}

const REPLACEMENT = "[redacted]";

// Names of JSON members, headers and query parameters whose value is a secret.
const SECRET = "authorization|proxy-authorization|(?:x-)?api[-_ ]?key|x-goog-api-key|x-amz-security-token|(?:access|refresh|id|auth|session|bearer|secret|security)[-_]?token|token|client[-_]?secret|secret(?:[-_]?(?:key|access[-_]?key))?|private[-_]?key|password|passwd|credential|(?:set-)?cookie|signature";
const NAME = `[\\w-]{0,60}(?:${SECRET})`; // also openai_api_key, DB_PASSWORD
const MEMBER = new RegExp(`("${NAME}"\\s*:\\s*)"([^"\\\\]*(?:\\\\[^][^"\\\\]*)*)"`, "gi");
// The same in JSON that is a string in JSON, such as the arguments of a call; the group is the escape of its quotes.
const NESTED = new RegExp(`((?<!\\\\)(\\\\+)"${NAME}\\2"\\s*:\\s*\\2")(?:\\\\[^]|[^"\\\\])*?(?=(?<!\\\\)\\2"|"|$)`, "gi");
// The end of the JSON string around a text that looks like code or markup.
const ENDS = `(?<!\\\\)"\\s*(?:[,:}\\]]|$)`;
// <parameter=password>…, login(password="…"), ["--token", "…"], --token …
const PARAMETER = new RegExp(`(<parameter(?:=|\\s+name=\\\\*["']?)${NAME}\\\\*["']?>)(?:\\\\n|\\s)*(?!${ENDS})[^<\\s\\\\](?:(?!${ENDS})[^<])*`, "gi");
const KEYWORD = new RegExp(`((?<![\\w-])${NAME}\\s*=\\s*(\\\\*["']))(?:(?!(?<!\\\\)\\2|${ENDS})[^\\n])*`, "gi");
const OPTION = new RegExp(`((?<!\\\\)\\\\*"--?${NAME}\\\\*"\\s*,\\s*\\\\*")(?:\\\\[^"]|[^"\\\\])+`, "gi");
const ARGUMENT = new RegExp(`((?<![\\w-])--${NAME}[= ])[^\\s"'\\\\]+`, "gi");
const QUOTED = new RegExp(`((?<![\\w-])--?${NAME}\\s+(\\\\*["']))(?:(?!(?<!\\\\)\\2|${ENDS})[^\\n])*`, "gi");
// DB_PASSWORD=… in a shell, also inside of a JSON string, and a password that is a number in JSON
const ASSIGNMENT = new RegExp(`((?<![\\w-])${NAME}=)(?![="'\\\\])[^\\s"'\\\\&,;)]+`, "gi");
const ESCAPED = new RegExp(`(\\\\n[ \\t]*${NAME}[ \\t]*:[ \\t]+)(?!["'{\\[])[^\\s"'\\\\][^"'\\\\]*`, "gi"); // LINE inside of a JSON string
const NUMBER = new RegExp(`((?<!\\\\)(\\\\*)"[\\w-]{0,60}(?:password|passwd|passphrase|secret|credential)\\2"\\s*:\\s*)-?\\d[\\w.+-]*`, "gi");
const HEADERS = /("(?:[\w-]*headers|env)"\s*:\s*)\{([^{}]*)\}/gi;
// It begins after no backslash: escaped quotes without an end would each be read to the end of the text.
const HEADER_VALUE = /((?<!\\)"[^"\\]*(?:\\[^][^"\\]*)*"\s*:\s*)"[^"\\]*(?:\\[^][^"\\]*)*"/g;
const LINE = new RegExp(`^([ \\t]*(?:-H\\s*|export\\s+)?['"]?${NAME}['"]?\\s*[:=]\\s*)(?!["'{\\[])(\\S[^\\n"']*)`, "gim");
const QUERY = new RegExp(`([?&#](?:${NAME}|key|sig)=)[^&\\s"'#\\\\]+`, "gi");
const USER = /(\b[a-z][a-z0-9+.-]{0,30}:\/\/)[^\s/@"'\\]+@/gi;
// Values that are keys whatever their name is: of OpenAI, Anthropic, Google, GitHub, Slack, AWS, Hugging Face and others; JWTs; PEM.
const VALUES = [
  /\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}/g,
  /\bAIza[A-Za-z0-9_-]{30,}/g,
  /\bya29\.[A-Za-z0-9_-]{20,}/g,
  /\b(?:ghp|gho|ghu|ghs|ghr|github_pat)_[A-Za-z0-9_]{20,}/g,
  /\bglpat-[A-Za-z0-9_-]{16,}/g,
  /\bxox[a-z]-[A-Za-z0-9-]{10,}/g,
  /\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/g,
  /\b(?:hf|gsk|xai|r8|nvapi|tvly|pplx|fw|csk)[_-][A-Za-z0-9_-]{16,}/g,
  /\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*/g,
  /-----BEGIN [A-Z ]*PRIVATE KEY-----[^]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g,
  /\b(?:Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}/gi,
];

/** Replace secrets. @param {string} text @returns {{ text: string, removed: string[] }}  `removed` names what was replaced, never its value */
export function redact(text) {
  /** @type {Map<string, number>} */ const removed = new Map();
  const note = (/** @type {string} */ name) => removed.set(name, (removed.get(name) ?? 0) + 1);
  const member = (/** @type {string} */ start, /** @type {string} */ value) => {
    if (value === REPLACEMENT) return `${start}"${value}"`;
    note(/"([^"]*)"/.exec(start)?.[1] ?? "key");
    return `${start}"${REPLACEMENT}"`;
  };
  let clean = text.replace(HEADERS, (_, start, body) => {
    note(/"([^"]*)"/.exec(start)?.[1] ?? "headers");
    return `${start}{${String(body).replace(HEADER_VALUE, `$1"${REPLACEMENT}"`)}}`;
  });
  clean = clean.replace(MEMBER, (_, start, value) => member(start, value));
  clean = clean.replace(NUMBER, (_, start, escape) => {
    note("number");
    return `${start}${escape}"${REPLACEMENT}${escape}"`;
  });
  for (const pattern of [NESTED, PARAMETER, KEYWORD, OPTION, QUOTED, ARGUMENT, ASSIGNMENT, ESCAPED]) {
    clean = clean.replace(pattern, (whole, start) => {
      if (whole.slice(start.length).startsWith(REPLACEMENT)) return whole;
      note("argument");
      return start + REPLACEMENT;
    });
  }
  clean = clean.replace(LINE, (whole, start, value) => {
    if (String(value).startsWith(REPLACEMENT)) return whole;
    note("header");
    return `${start}${REPLACEMENT}`;
  });
  clean = clean.replace(QUERY, (_, start) => {
    note("address");
    return `${start}${REPLACEMENT}`;
  });
  clean = clean.replace(USER, (_, start) => {
    note("address");
    return `${start}${REPLACEMENT}@`;
  });
  for (const pattern of VALUES) {
    clean = clean.replace(pattern, () => {
      note("key");
      return REPLACEMENT;
    });
  }
  return { text: clean, removed: [...removed].map(([name, times]) => (times > 1 ? `${name} (${times})` : name)) };
}

/** @param {{ view: string, state: import("./api.js").Shared, onClose: () => void }} props */
export function ShareDialog({ view, state, onClose }) {
  const [link, setLink] = useState("");
  const [notes, setNotes] = useState(/** @type {string[]} */ ([]));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const write = async () => {
      if (state.input.length + (state.tools ?? "").length > 20 * LONGEST_LINK) return setProblem("The document is too long for a link. Share the document itself."); // it compresses at most about twenty times
      const { clean, removed } = redactState(state);
      const url = `${location.origin}${location.pathname}#/${view}?s=${await encodeState(clean)}`;
      setNotes(removed);
      if (url.length > LONGEST_LINK) setProblem(`The link would have ${count(url.length)} characters; programs cut links of more than ${count(LONGEST_LINK)}. Share the document itself.`);
      else setLink(url);
    };
    write().catch((error) => setProblem(messageOf(error)));
  }, []);
  return html`<${Dialog} title="Share this view" onClose=${onClose}>
    <p>The link holds the document itself, after the <code>#</code>, which no server receives. Another console opens it when it is pasted there. It never contains your token.</p>
    ${notes.length ? html`<p class="note">Replaced by <code>[redacted]</code>: ${notes.join(", ")}.</p>` : html`<p class="note">No member, parameter or header with the name of a secret, and no known form of a key, was found in it. Secrets in plain text or split over the chunks of a stream are not found: look yourself, too.</p>`}
    ${problem
      ? html`<p class="problem" role="alert"><${Icon} name="alert" />${problem}</p>`
      : html`<div class="copy-field">
          <input aria-label="Link" readonly value=${link} onFocus=${(/** @type {any} */ event) => event.currentTarget.select()} />
          <button type="button" class="button primary" disabled=${!link} onClick=${() => copyText(link, "Link")}><${Icon} name="copy" />Copy link</button>
        </div>`}
  </${Dialog}>`;
}

/** Replace secrets in all texts of a state. A cut is a byte of the original, so it is left out if that changed. @param {import("./api.js").Shared} state */
function redactState(state) {
  const input = redact(state.input);
  const tools = redact(state.tools ?? "");
  const clean = { ...state, input: input.text, ...(state.tools ? { tools: tools.text } : {}), ...(input.removed.length && state.end !== undefined ? { end: null } : {}) };
  return { clean, removed: [...input.removed, ...tools.removed] };
}
