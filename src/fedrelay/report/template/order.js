// Who trains after whom in a round: a row of dots for every chain, in as many columns as there is room for.
const COLOURS = ["#2f6fde", "#d9622b", "#1b9470", "#b54fc4", "#a87b00", "#d6456b", "#0e8fb0", "#7a62d9", "#5f8f1f", "#a8653f", "#c2418f"];
const GREY = "#6d7f95", STEP = 30, ROW = 28, GAP = 34;
const CLASSES_LISTED = 30;

const classColour = (kind) => (kind === undefined ? GREY : COLOURS[kind % COLOURS.length]);

function drawOrder(root, orders) {
  const find = (name) => root.querySelector(`[data-order=${name}]`);
  const [run, slider, number, told, classes, picture] = ["run", "round", "number", "told", "classes", "picture"].map(find);

  function dot(one, client, x, y, { lost, attacked, text }) {
    const colour = classColour(one.main[client]);
    const fill = lost ? `fill="none" stroke-dasharray="3 2"` : `fill="${colour}"`;
    const ring = attacked ? `<circle cx="${x}" cy="${y}" r="13" fill="none" stroke="var(--text)"/>` : "";
    const kind = one.main[client] === undefined ? "" : `, mostly ${one.classes[one.main[client]]}`;
    const words = `client ${client}${kind}${lost ? ", lost" : ""}${attacked ? ", attacks" : ""}`;
    return `<g><title>${escaped(words)}</title>${ring}<circle cx="${x}" cy="${y}" r="11" stroke="${colour}" stroke-width="1.5" ${fill}/>` +
      `<text x="${x}" y="${y + 3.5}" text-anchor="middle" class="${lost ? "" : "on"}">${text}</text></g>`;
  }

  function chainsOf(one, place) {
    const has = (pairs) => new Set(pairs.map(([chain, hop]) => `${chain}-${hop}`));
    const lost = has(one.lost[place]), attacked = has(one.attacked[place]), chains = one.chains[place];
    const longest = Math.max(...chains.map((chain) => chain.length)), wide = longest * STEP + GAP;
    const columns = Math.max(1, Math.min(chains.length, Math.floor(picture.clientWidth / wide)));
    const rows = Math.ceil(chains.length / columns);
    const drawn = chains.map((chain, which) => {
      const left = Math.floor(which / rows) * wide + 14, y = (which % rows) * ROW + 15;
      const way = chain.length > 1 ? `<line x1="${left}" y1="${y}" x2="${left + (chain.length - 1) * STEP}" y2="${y}" stroke="var(--muted)" stroke-width="2"/>` : "";
      const dots = chain.map((client, hop) => dot(one, client, left + hop * STEP, y, {
        lost: lost.has(`${which}-${hop}`), attacked: attacked.has(`${which}-${hop}`), text: client < 1000 ? client : "",
      }));
      return way + dots.join("");
    });
    const [width, height] = [columns * wide, rows * ROW + 4];
    return `<svg width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="Chains of round ${one.rounds[place]}">${drawn.join("")}</svg>`;
  }

  function show() {
    const one = orders[run.value], place = Number(slider.value), chains = one.chains[place];
    number.textContent = one.rounds[place];
    slider.setAttribute("aria-valuetext", `round ${one.rounds[place]}`);
    const lengths = chains.map((chain) => chain.length), longest = Math.max(...lengths), lost = one.lost[place].length;
    const first = chains[lengths.indexOf(longest)];
    const way = longest > 1 ? `; the longest goes ${first.slice(0, 12).join(" → ")}${longest > 12 ? " → …" : ""}` : ", each of one client";
    told.textContent = `${one.name}, round ${one.rounds[place]}: ${count(chains.length)} ${chains.length === 1 ? "chain" : "chains"}${way}.${lost ? ` ${lost} lost (dashed).` : ""}`;
    picture.innerHTML = chainsOf(one, place);
  }

  function choose() {
    const one = orders[run.value];
    slider.max = one.rounds.length - 1;
    slider.value = Math.min(slider.value, slider.max);
    const present = one.classes.length > CLASSES_LISTED ? [] : one.classes.map((name, kind) => [name, kind]);
    classes.innerHTML = present.map(([name, kind]) => `<li><i style="background:${classColour(kind)}"></i>${escaped(name)}</li>`).join("");
    show();
  }

  // A run with long chains is the one to look at first.
  const lengths = orders.map(({ chains }) => Math.max(...chains.flat().map((chain) => chain.length)));
  run.value = lengths.indexOf(Math.max(...lengths));
  run.addEventListener("change", choose);
  slider.addEventListener("input", show);
  window.addEventListener("resize", show);
  choose();
}

function escaped(text) {
  const made = document.createElement("i");
  made.textContent = text;
  return made.innerHTML.replaceAll('"', "&quot;");
}
