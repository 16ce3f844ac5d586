// Who trains after whom, as a moving picture: batons leave the server, go along their chains, and come back to be merged.
const GAP = 46, ROW = 40, RADIUS = 14, END = 56, MOST = 400;
const SPACE = "http://www.w3.org/2000/svg";

function made(kind, values, parent) {
  const found = document.createElementNS(SPACE, kind);
  for (const [key, value] of Object.entries(values)) found.setAttribute(key, value);
  parent.append(found);
  return found;
}

export class Picture {
  constructor(svg) {
    this.svg = svg;
    this.chains = [];
    this.playing = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.began = 0;
    this.frame = null;
  }

  // chains: [{ clients, lost: Set of hops, hop: the one that trains now, if that is known }]
  show(chains, { live = false, serverless = false, restart = true } = {}) {
    const key = JSON.stringify([chains.map((one) => [one.clients, [...(one.lost || [])]]), live, this.svg.parentElement.clientWidth]);
    this.live = live;
    this.svg.classList.toggle("live", live);
    if (key !== this.key) {
      this.key = key;
      this.lay(chains, serverless);
      if (restart) this.began = performance.now();
    }
    if (live) chains.slice(0, this.chains.length).forEach((one, place) => this.put(this.chains[place], one.hop - 0.5));
    this.play(this.playing);
    return this.chains.length;
  }

  lay(chains, serverless) {
    const wide = Math.max(260, this.svg.parentElement.clientWidth - 4), edge = serverless ? 10 : END + 26;
    const room = Math.max(1, Math.floor((wide - 2 * edge) / GAP));
    const longest = Math.max(1, ...chains.map((one) => one.clients.length));
    const across = Math.min(longest, room), columns = Math.max(1, Math.floor(room / (across + (longest > 1 ? 0.6 : 0))));
    this.svg.replaceChildren();
    this.chains = [];
    let nodes = 0, row = 0, column = 0;
    const places = [];
    for (const one of chains) {
      if (nodes + one.clients.length > MOST && nodes) break;
      nodes += one.clients.length;
      const left = edge + GAP / 2 + column * (across + (longest > 1 ? 0.6 : 0)) * GAP;
      const spots = one.clients.map((_, hop) => {
        const line = Math.floor(hop / across), along = hop % across;
        return [left + (line % 2 ? across - 1 - along : along) * GAP, (row + line + 0.7) * ROW];
      });
      places.push({ one, spots });
      if (++column === columns) { column = 0; row += Math.ceil(longest / across); }
    }
    const rows = row + (column ? Math.ceil(longest / across) : 0), high = Math.max(rows, 1) * ROW + 16;
    const used = Math.max(wide - 2, ...places.flatMap(({ spots }) => spots.map(([x]) => x + edge)));
    for (const [name, value] of Object.entries({ width: used, height: high, viewBox: `0 0 ${used} ${high}` })) this.svg.setAttribute(name, value);
    const middle = high / 2;
    const ends = serverless ? null : [[END / 2 + 4, middle], [used - END / 2 - 4, middle]];
    for (const { one, spots } of places) this.draw(one, spots, ends);
    if (ends) [["server", ends[0]], ["merge", ends[1]]].forEach(([word, [x, y]]) => {
      made("rect", { class: "end", x: x - END / 2, y: y - 15, width: END, height: 30, rx: 8 }, this.svg);
      made("text", { x, y }, this.svg).textContent = word;
    });
    for (const chain of this.chains) chain.baton = made("circle", { class: "baton", r: 6, cx: 0, cy: 0 }, this.svg);
    for (const chain of this.chains) this.put(chain, this.live ? 0 : chain.spots.length + 0.3);
  }

  draw({ clients, lost }, spots, ends) {
    if (spots.length > 1) made("polyline", { class: "hop", points: spots.map((spot) => spot.join(",")).join(" ") }, this.svg);
    const circles = spots.map(([cx, cy], hop) => {
      const gone = lost && lost.has(hop), circle = made("circle", { class: gone ? "client lost" : "client", cx, cy, r: RADIUS }, this.svg);
      made("title", {}, circle).textContent = `client ${clients[hop]}, hop ${hop + 1} of ${clients.length}${gone ? ": lost" : ""}`;
      made("text", { x: cx, y: cy, "pointer-events": "none" }, this.svg).textContent = String(clients[hop]);
      return circle;
    });
    this.chains.push({ spots, circles, ends, lost: lost || new Set(), baton: null });
  }

  // At `time` a chain is on its way to its first client (0 to 0.3), trains there (0.3 to 1), goes on (1 to 1.3) …
  put(chain, time) {
    const { spots, circles, ends, baton, lost } = chain, last = spots.length;
    const hop = Math.min(Math.floor(time), last), part = Math.min(1, (time - hop) / 0.3);
    const from = hop ? spots[hop - 1] : ends ? ends[0] : spots[0];
    const to = hop < last ? spots[hop] : ends ? ends[1] : spots[last - 1];
    const smooth = part * part * (3 - 2 * part);
    // It sits on the rim, so that the number can be read.
    const lift = (place) => (place >= 0 && place < last ? RADIUS + 1 : ends ? 16 : 0);
    const y = from[1] - lift(hop - 1) + (to[1] - lift(hop) - from[1] + lift(hop - 1)) * smooth;
    baton.style.transform = `translate(${from[0] + (to[0] - from[0]) * smooth}px, ${y}px)`;
    circles.forEach((circle, place) => {
      circle.classList.toggle("done", place < hop && !lost.has(place));
      circle.classList.toggle("now", place === hop && part === 1 && !lost.has(place));
    });
  }

  play(on) {
    this.playing = on;
    cancelAnimationFrame(this.frame);
    if (!on || this.live || !this.chains.length) return;
    const longest = Math.max(...this.chains.map((chain) => chain.spots.length)) + 0.3;
    const speed = Math.max(longest / 12, Math.min(1.6, longest / 2.5)); // hops a second: from 2.5 to 12 seconds in all
    const step = (now) => {
      const time = ((Math.max(0, now - this.began) / 1000) * speed) % (longest + speed * 0.8);
      for (const chain of this.chains) this.put(chain, Math.min(time, chain.spots.length + 0.3));
      this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }
}
