// Run the search worker of a built site, as a browser does: node search.mjs SITE < QUERIES. Each line of the input is a query;
// each line of the output is the list of locations that it finds, best first.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import vm from "node:vm";

const site = process.argv[2];
const workers = join(site, "assets/javascripts/workers");
const [file] = readdirSync(workers).filter((name) => name.startsWith("search.") && name.endsWith(".js"));
const index = JSON.parse(readFileSync(join(site, "search/search_index.json"), "utf-8"));
const SETUP = 0, QUERY = 2;  // the types of messages to the worker

let handle;
const answers = [];
const context = { console, URL, addEventListener: (_, handler) => { handle = handler; }, postMessage: (message) => answers.push(message) };
context.self = context;
vm.runInNewContext(readFileSync(join(workers, file), "utf-8"), context);
// The page of the site changes the settings likewise before it starts the worker.
const config = { ...index.config, lang: index.config.lang, separator: index.config.separator };
await handle({ data: { type: SETUP, data: { config, docs: index.docs, options: { suggest: false } } } });
for (const query of readFileSync(0, "utf-8").split("\n").filter(Boolean)) {
  answers.length = 0;
  await handle({ data: { type: QUERY, data: query } });
  const groups = answers[0].data.items;
  console.log(JSON.stringify(groups.map((group) => group.toSorted((a, b) => b.score - a.score)[0].location)));
}
