// @ts-check
// The state of a view in a link. Secrets are replaced in the text before it is encoded.

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
const MEMBER = new RegExp(`("(?:${SECRET})"\\s*:\\s*)"([^"\\\\]*(?:\\\\[^][^"\\\\]*)*)"`, "gi");
const HEADERS = /("(?:[\w-]*headers|env)"\s*:\s*)\{([^{}]*)\}/gi;
const HEADER_VALUE = /("[^"\\]*(?:\\[^][^"\\]*)*"\s*:\s*)"[^"\\]*(?:\\[^][^"\\]*)*"/g;
const LINE = new RegExp(`^([ \\t]*(?:-H\\s*)?['"]?(?:${SECRET})['"]?\\s*[:=]\\s*)(?!["'{\\[])(\\S[^\\n"']*)`, "gim");
const QUERY = new RegExp(`([?&](?:${SECRET}|key|sig)=)[^&\\s"'#\\\\]+`, "gi");
const USER = /(\b[a-z][a-z0-9+.-]*:\/\/)[^\s/@"'\\]+@/gi;
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
