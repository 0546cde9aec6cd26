// @ts-check
// The page that `toolwire convert --html` writes: one translation, embedded as data, without a server.
import { html, render, Announcer } from "./core.js";
import { Comparison } from "./comparison.js";

const data = document.getElementById("toolwire-data");
const root = document.getElementById("app");
if (data && root) {
  const answer = JSON.parse(data.textContent ?? "null");
  root.textContent = "";
  const titles = { ...answer.titles };
  for (const { name, family } of answer.outputs) if (family === "text") titles[name] = name; // the title of a format describes it
  render(
    html`<div class="shell single">
      <header class="top"><span class="brand"><span class="mark" aria-hidden="true"></span>toolwire</span></header>
      <main id="main" tabindex="-1"><div class="view"><h1 class="hidden-label">Translation</h1><${Comparison} answer=${answer} titles=${titles} onSnippet=${null} /></div></main>
      <${Announcer} />
    </div>`,
    root,
  );
}
