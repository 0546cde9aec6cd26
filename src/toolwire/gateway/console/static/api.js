// @ts-check
// The token of this page, requests to its server, and the answer that a view shows.
//
// The printed address carries the token in its fragment, which browsers send to no server. It moves into sessionStorage, which
// belongs to this origin and tab, and is removed from the address, the history and everything that is shared.
import { useEffect, useState } from "./core.js";

/** @typedef {[number, number]} At  UTF-16 offsets in a document's text */
/** @typedef {{ id: string, pointer: string | null, spans: At[], changed: boolean }} Place */
/** @typedef {{ path: string, target: string | null, concept: string, action: string, severity: string, reason: string, source_at: At | null, target_at: At | null }} Loss */
/** @typedef {{ type: string, message: string, pointer?: string | null, hint?: string | null, at?: At | null }} Fault */
/** @typedef {{ name: string, family: string, language: string, text: string | null, elements: Place[], losses: Loss[], error: Fault | null }} Output */
/** @typedef {{ name: string, kind: string, family: string, detected: boolean, text: string, elements: Place[], losses: Loss[] }} Source */
/** @typedef {{ source: Source, outputs: Output[], elements: Record<string, { kind: string, label: string, parent: string | null }>, left_out?: number }} Translation */
/** @typedef {{ id: string, view: string, title: string, input: string, wire: string | null, kind: string | null, format: string | null }} Sample */
/** @typedef {{ name: string, title: string, kinds?: string[], example?: string }} Named */
/** @typedef {{ version: string, wires: Named[], formats: Named[], kinds: string[], providers: string[], samples: Sample[], file: { name: string, text: string } | null, limits: { body_bytes: number, elements: number, steps: number } }} Meta */
/** @typedef {{ input: string, tools?: string, end?: number | null, [field: string]: unknown }} Shared  the state of a view */
/** @typedef {(state: Shared) => void} OnShare */

const KEY = "toolwire-console-token";

/** An answer of the server that is an error. */
export class ApiError extends Error {
  /** @param {Fault} fault @param {number} status */
  constructor(fault, status) {
    super(fault.message);
    this.fault = fault;
    this.status = status;
  }
}

/** Move a token from the address into the storage of this tab, and return the other settings of the fragment. @returns {URLSearchParams} */
export function takeToken() {
  const settings = new URLSearchParams(location.hash.startsWith("#/") ? "" : location.hash.slice(1));
  const token = settings.get("token");
  if (token !== null) {
    sessionStorage.setItem(KEY, token);
    settings.delete("token");
    const rest = settings.get("s") ? `#/translate?s=${encodeURIComponent(settings.get("s") ?? "")}` : "#/translate";
    history.replaceState(null, "", location.pathname + rest);
  }
  return settings;
}

export function hasToken() {
  return Boolean(sessionStorage.getItem(KEY));
}

/** @param {string} path @param {object} [body] @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function ask(path, body, signal) {
  /** @type {Record<string, string>} */ const headers = { authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  if (body) headers["content-type"] = "application/json";
  /** @type {Response} */ let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body ? JSON.stringify(body) : null, signal: signal ?? null });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError({ type: "NetworkError", message: "The console's server does not answer.", hint: "Start `toolwire console` again and open the address that it prints." }, 0);
  }
  /** @type {any} */ let data = null;
  try {
    data = await answer.json();
  } catch (error) {
    if (signal?.aborted) throw error;
  }
  if (answer.status === 401 || answer.status === 403) window.dispatchEvent(new Event("toolwire:lost-token"));
  if (!answer.ok || data === null) {
    throw new ApiError(data?.error ?? { type: "HttpError", message: `The console's server answered ${answer.status}.` }, answer.status);
  }
  return data;
}

/** @param {unknown} error @returns {Fault} */
export function faultOf(error) {
  return error instanceof ApiError ? error.fault : { type: "Error", message: error instanceof Error ? error.message : String(error) };
}

/**
 * The server's answer to the state of a view, once the state has not changed for `delay` milliseconds. `load` asks for it, and
 * passes it to `show`, also in several versions; a newer state aborts it. A blank input has no answer. After a fault, the old answer stays.
 * @template {{ input: string }} S
 * @template A
 * @param {S} state
 * @param {number} delay
 * @param {(state: S, signal: AbortSignal, show: (answer: A | null) => void) => Promise<void>} load
 * @returns {{ answer: A | null, fault: Fault | null, settled: S, busy: boolean, current: boolean }}  `current`: the answer is to this state
 */
export function useAnswer(state, delay, load) {
  const [settled, setSettled] = useState(state);
  const [answer, setAnswer] = useState(/** @type {A | null} */ (null));
  const [fault, setFault] = useState(/** @type {Fault | null} */ (null));
  const [done, setDone] = useState(/** @type {S | null} */ (null)); // the state that is shown
  useEffect(() => {
    const timer = setTimeout(() => setSettled(state), delay);
    return () => clearTimeout(timer);
  }, [state, delay]);
  useEffect(() => {
    const control = new AbortController();
    const unlessOld = (/** @type {() => void} */ change) => control.signal.aborted || change();
    const show = (/** @type {A | null} */ next) => {
      setAnswer(next);
      setFault(null);
    };
    (settled.input.trim() ? load(settled, control.signal, (next) => unlessOld(() => show(next))) : Promise.resolve(show(null)))
      .catch((error) => unlessOld(() => setFault(faultOf(error))))
      .finally(() => unlessOld(() => setDone(settled)));
    return () => control.abort();
  }, [settled]);
  return { answer, fault, settled, busy: done !== settled, current: done === state };
}
