// The page: asks for what is new, and draws it. All texts of files are put in as text, never as markup.
import { Chart, look, swatch } from "./charts.js";
import { Picture } from "./relay.js";

const EVERY = 1000;
const id = (name) => document.getElementById(name);
const token = document.querySelector("meta[name=token]").content;
const runs = new Map(); // by number: what the server has told, and all points by name
const ticked = new Set();
const rows = new Map();
const charts = { value: new Chart(id("value")), train_loss: new Chart(id("train_loss")) };
const picture = new Picture(id("picture"));
let shown = null, colours = [], fields = [], known = false, pending = false, drawnRound = null;

async function ask(path, body) {
  const options = { headers: { "X-Fedrelay-Token": token }, cache: "no-store" };
  if (body) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  const answer = await fetch(path, options);
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

// --- words

const UNITS = ["bytes", "kB", "MB", "GB", "TB", "PB"];
function size(bytes) {
  const power = bytes < 1000 ? 0 : Math.min(5, Math.floor(Math.log10(bytes) / 3));
  return `${Number((bytes / 1000 ** power).toPrecision(3))} ${UNITS[power]}`;
}
function duration(seconds) {
  if (seconds === null) return "";
  if (seconds < 100) return `${Number(seconds.toPrecision(2))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
function figure(value, metric, exact = true) {
  if (value === null || value === undefined) return "–";
  return metric.share ? `${(100 * value).toFixed(exact ? 1 : 0)} %` : String(Number(value.toPrecision(exact ? 4 : 3)));
}
const plain = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(4))));

// --- what is new

function take(told) {
  colours = told.colours;
  fields = told.point;
  id("title").textContent = told.folder;
  let changed = runs.size !== told.runs.length;
  const there = new Set(told.runs.map((one) => one.id));
  for (const number of runs.keys()) if (!there.has(number)) { runs.delete(number); ticked.delete(number); }
  for (const one of told.runs) {
    const before = runs.get(one.id);
    const points = one.first && before ? before.points : Object.fromEntries(fields.map((name) => [name, []]));
    for (const point of one.points) fields.forEach((name, place) => points[name].push(point[place]));
    changed = changed || one.points.length > 0 || one.first === 0 || before?.federation !== one.federation;
    runs.set(one.id, { ...one, points, look: look(colours, one.id) });
    if (!before && ticked.size < 8) { ticked.add(one.id); changed = true; }
  }
  if (!runs.has(shown)) shown = (told.runs.find((one) => one.going) || told.runs[0] || { id: null }).id;
  const going = told.runs.filter((one) => one.going).length;
  const more = told.pending ? `; ${told.pending} more are being read …` : "";
  id("state").textContent = `${told.runs.length} run${told.runs.length === 1 ? "" : "s"}, ${going} going on${more}`;
  pending = told.pending > 0;
  id("state").classList.remove("lost");
  id("empty").hidden = pending || told.runs.length > 0;
  list();
  if (changed || !known) curves();
  known = true;
}

async function poll() {
  try {
    const have = [...runs.values()].map((one) => `${one.id}.${one.part}.${one.points.round.length}`).join(",");
    take(await ask(`/api/runs?have=${have}`));
    await detail();
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    id("state").textContent = `The board does not answer (${error.message}); it may have been ended. Trying again …`;
    id("state").classList.add("lost");
  }
  setTimeout(poll, pending ? 0 : document.hidden ? 5 * EVERY : EVERY);
}

// --- the list

function rowOf(one) {
  if (rows.has(one.id)) return rows.get(one.id);
  const row = document.createElement("tr"), cells = Array.from({ length: 7 }, () => document.createElement("td"));
  const tick = Object.assign(document.createElement("input"), { type: "checkbox" });
  tick.addEventListener("change", () => { if (tick.checked) ticked.add(one.id); else ticked.delete(one.id); curves(); list(); });
  const name = Object.assign(document.createElement("button"), { type: "button", className: "name" });
  const text = document.createElement("span"), method = document.createElement("small");
  name.append(swatch(one.look), text, method);
  name.addEventListener("click", () => { shown = one.id; drawnRound = null; id("newest").checked = true; id("said").textContent = ""; list(); detail(); });
  const state = document.createElement("span"), bar = document.createElement("progress"), done = document.createElement("span");
  cells[0].append(tick); cells[1].append(name); cells[2].append(state); cells[3].append(bar, done);
  cells.slice(4).forEach((cell) => cell.classList.add("number"));
  row.append(...cells);
  const found = { row, cells, tick, name, text, method, state, bar, done };
  rows.set(one.id, found);
  return found;
}

function list() {
  const body = id("runs").tBodies[0];
  for (const [number, { row }] of rows) if (!runs.has(number)) { row.remove(); rows.delete(number); }
  for (const one of runs.values()) {
    const row = rowOf(one);
    row.row.classList.toggle("shown", one.id === shown);
    row.tick.checked = ticked.has(one.id);
    row.tick.setAttribute("aria-label", `compare ${one.name}`);
    row.name.setAttribute("aria-pressed", String(one.id === shown));
    row.text.textContent = one.name;
    row.name.title = one.folder;
    row.method.textContent = one.algorithm === one.name ? "" : one.algorithm;
    row.state.textContent = one.status;
    row.state.title = one.words;
    row.state.className = `state ${one.status}`;
    row.bar.max = one.total || 1;
    row.bar.value = one.rounds;
    row.bar.setAttribute("aria-label", `rounds of ${one.name}`);
    row.done.textContent = `${one.rounds}/${one.total || "?"}`;
    row.cells[4].textContent = figure(one.value, one.metric);
    row.cells[5].textContent = size(one.bytes);
    row.cells[6].textContent = duration(one.seconds_left);
    if (!row.row.isConnected) body.append(row.row);
  }
  id("all").checked = runs.size > 0 && ticked.size === runs.size;
  id("all").indeterminate = ticked.size > 0 && ticked.size < runs.size;
}

// --- curves

function curves() {
  const chosen = [...runs.values()].filter((one) => ticked.has(one.id) && one.points.round.length > 0), along = id("along").value;
  const some = chosen.filter((one) => one.federation === chosen[0].federation), others = chosen.length - some.length;
  const left = others === 1 ? "1 ticked run is" : `${others} ticked runs are`;
  id("apart").hidden = !others;
  id("apart").textContent = others ? `Drawn: ${some[0].data}. ${left} of other data and left out, because figures of different data cannot be compared; untick those that are drawn to see the others.` : "";
  const metric = (some[0] || [...runs.values()][0] || { metric: { words: "accuracy", share: true } }).metric;
  const title = metric.words[0].toUpperCase() + metric.words.slice(1);
  id("value-title").textContent = title;
  id("metric").textContent = metric.words;
  const x = { round: (value, exact) => (exact ? `round ${Math.round(value)}` : String(value)), bytes: size, seconds: (value) => duration(value) }[along];
  for (const [name, chart] of Object.entries(charts)) {
    const alike = name === "value" ? some.filter((one) => one.metric.name === metric.name) : some; // other figures have another axis
    const series = alike.map((one) => {
      const values = one.points[name], places = values.map((_, place) => place).filter((place) => values[place] !== null);
      return { name: one.name, ...one.look, x: places.map((place) => one.points[along][place]), y: places.map((place) => values[place]) };
    });
    const y = name === "value" ? (value, exact) => figure(value, metric, exact || false) : (value) => plain(value);
    chart.show(series, { x, y, label: name === "value" ? title : "Training loss" });
  }
}

// --- one run

function lines(parent, parts) {
  parent.replaceChildren(...parts.map(([word, value]) => {
    const line = document.createElement("div"), term = document.createElement("dt"), said = document.createElement("dd");
    term.textContent = word;
    said.textContent = value;
    line.append(term, said);
    return line;
  }));
}

async function detail() {
  const one = runs.get(shown);
  id("one").hidden = !one;
  if (!one) return;
  id("one-title").textContent = `${one.name}: ${one.words}`;
  id("stop").hidden = !one.going;
  id("resume").hidden = one.going || one.status === "finished" || Boolean(one.resumed && one.resumed.going);
  lines(id("facts"), [
    ["method", one.algorithm], ["rounds", `${one.rounds} of ${one.total || "?"}`], [one.metric.words, `${figure(one.value, one.metric)} (best ${figure(one.best, one.metric)})`],
    ["training loss", plain(one.train_loss)], ["test loss", plain(one.loss)], ["traffic", size(one.bytes)], ["work", duration(one.seconds)],
    ...(one.seconds_left === null ? [] : [["left", `about ${duration(one.seconds_left)}`]]), ...(one.pid === null ? [] : [["process", String(one.pid)]]),
    ...(one.damaged ? [["damaged lines, skipped", String(one.damaged)]] : []),
  ]);
  id("dropped").textContent = one.drops.map((drop) => `Client ${drop.client} was dropped ${drop.times} time(s), last in round ${drop.round}: ${drop.reason}`).join("\n");
  id("log").hidden = !one.resumed;
  if (one.resumed) {
    const ended = one.resumed.going ? "" : `\n(ended with code ${one.resumed.code})`, text = `${one.resumed.log}${ended}`, log = id("log").querySelector("pre");
    if (log.textContent !== text) { log.textContent = text; log.scrollTop = log.scrollHeight; }
  }
  await relay(one);
}

async function relay(one) {
  const slider = id("round"), newest = id("newest").checked;
  slider.max = Math.max(1, one.rounds);
  if (newest) slider.value = slider.max;
  id("round-said").textContent = one.rounds ? `${slider.value} of ${one.rounds}` : "";
  if (newest && one.underway.length) {
    drawnRound = null;
    id("picture-said").textContent = `Round ${one.rounds + 1} is under way: who trains now has an orange rim.`;
    picture.show(one.underway, { live: true });
    return;
  }
  if (!one.rounds) { picture.show([]); id("picture-said").textContent = "No round has ended yet."; return; }
  // A picture that plays is let play: rounds may be shorter than it is.
  if (newest && drawnRound && drawnRound.id === one.id && performance.now() - drawnRound.at < 4000 && drawnRound.round !== one.rounds) return;
  if (drawnRound && drawnRound.id === one.id && drawnRound.round === Number(slider.value)) return;
  const number = Number(slider.value), found = await ask(`/api/round?run=${one.id}&round=${number}`).catch(() => null);
  if (!found || shown !== one.id || number !== Number(slider.value)) return; // another one was chosen meanwhile
  drawnRound = { id: one.id, round: number, at: performance.now() };
  const chains = found.order.map((clients, place) => ({ clients, lost: new Set(found.lost.filter(([chain]) => chain === place).map(([, hop]) => hop)) }));
  const drawn = picture.show(chains, { serverless: found.serverless });
  const more = found.order.length > drawn ? ` Only the first ${drawn} chains are drawn.` : "";
  const lost = found.lost.length ? ` ${found.lost.length} client(s) were lost.` : "";
  id("picture-said").textContent = found.order.length
    ? `Round ${number}: ${found.chains} chain(s), ${found.order.flat().length} visits, each baton from client to client, then merged.${lost}${more}`
    : `Round ${number}: ${found.chains} chain(s); this run has not written who trained after whom.`;
}

async function act(what) {
  const button = id(what);
  button.disabled = true;
  try {
    id("said").textContent = (await ask(`/api/${what}`, { run: shown })).said;
  } catch (error) {
    id("said").textContent = error.message;
  }
  if (what === "resume") id("log").open = true;
  setTimeout(() => { button.disabled = false; }, 1500);
}

id("stop").addEventListener("click", () => act("stop"));
id("resume").addEventListener("click", () => act("resume"));
id("along").addEventListener("change", curves);
id("all").addEventListener("change", () => { ticked.clear(); if (id("all").checked) for (const number of runs.keys()) ticked.add(number); curves(); list(); });
id("round").addEventListener("input", () => { id("newest").checked = false; detail(); });
id("newest").addEventListener("change", () => { drawnRound = null; detail(); });
id("play").addEventListener("click", () => {
  picture.play(!picture.playing);
  id("play").textContent = picture.playing ? "Pause" : "Play";
  id("play").setAttribute("aria-pressed", String(picture.playing));
});
id("play").textContent = picture.playing ? "Pause" : "Play";
poll();
