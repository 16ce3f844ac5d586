// Curves on a canvas: quick with 50 runs of a thousand rounds, and read out by pointer or arrow keys.
const MARGIN = { left: 52, right: 24, top: 10, bottom: 34 };
const DASHES = [[], [6, 4], [2, 3], [9, 3, 2, 3]];

export function look(colours, place) {
  return { colour: colours[place % colours.length], dash: DASHES[Math.floor(place / colours.length) % DASHES.length] };
}

export function swatch({ colour, dash }) {
  const space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg"), line = document.createElementNS(space, "line");
  for (const [key, value] of Object.entries({ class: "swatch", viewBox: "0 0 20 10", width: 20, height: 10, "aria-hidden": true })) svg.setAttribute(key, value);
  const drawn = { x1: 1, x2: 19, y1: 5, y2: 5, stroke: colour, "stroke-width": 3, "stroke-dasharray": dash.map((part) => part * 0.8).join(" ") };
  for (const [key, value] of Object.entries(drawn)) line.setAttribute(key, value);
  svg.append(line);
  return svg;
}

function ticks(low, high, most) {
  const rough = (high - low || 1) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((part) => part * power).find((size) => size >= rough);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

export class Chart {
  constructor(canvas) {
    this.canvas = canvas;
    this.tip = canvas.nextElementSibling;
    this.series = [];
    this.write = { x: String, y: String, label: "" };
    this.at = null;
    canvas.addEventListener("pointermove", (event) => this.point(this.fromPixel(event.offsetX)));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("blur", () => this.point(null));
    canvas.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!way || !this.box) return;
      event.preventDefault();
      const [low, high] = this.box.x, step = (high - low) / 40;
      this.point(Math.min(high, Math.max(low, (this.at ?? (way > 0 ? low - step : high + step)) + way * step)));
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  show(series, write) {
    this.series = series.filter((one) => one.x.length);
    this.write = write;
    this.canvas.setAttribute("aria-label", `${write.label}: ${this.series.map((one) => `${one.name} ${write.y(one.y.at(-1))}`).join(", ") || "nothing yet"}`);
    this.draw();
  }

  point(value) {
    this.at = value;
    this.draw();
  }

  fromPixel(pixel) {
    if (!this.box) return null;
    const [low, high] = this.box.x;
    return low + ((pixel - MARGIN.left) / this.box.width) * (high - low);
  }

  draw() {
    const { canvas, series } = this, ratio = devicePixelRatio || 1;
    const wide = canvas.clientWidth, high = canvas.clientHeight;
    if (!wide) return;
    if (canvas.width !== Math.round(wide * ratio) || canvas.height !== Math.round(high * ratio)) {
      canvas.width = Math.round(wide * ratio);
      canvas.height = Math.round(high * ratio);
    }
    const css = getComputedStyle(document.documentElement), colour = (name) => css.getPropertyValue(name).trim();
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, wide, high);
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = "middle";
    this.tip.hidden = true;
    if (!series.length) {
      this.box = null;
      pen.fillStyle = colour("--muted");
      pen.textAlign = "center";
      pen.fillText("Nothing to draw yet", wide / 2, high / 2);
      return;
    }
    this.box = this.scaled(wide, high);
    this.axes(pen, colour("--line"), colour("--muted"), high);
    for (const one of series) this.curve(pen, one);
    if (this.at !== null) this.readOut(pen, colour("--muted"), high);
  }

  scaled(wide, high) {
    let [left, right, low, top] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const { x, y } of this.series)
      for (let place = 0; place < x.length; place++) {
        left = Math.min(left, x[place]); right = Math.max(right, x[place]);
        low = Math.min(low, y[place]); top = Math.max(top, y[place]);
      }
    if (left === right) { left = Math.min(0, left); right = right || 1; }
    if (low === top) { low -= Math.abs(low) * 0.1 || 0.5; top += Math.abs(top) * 0.1 || 0.5; }
    const room = (top - low) * 0.04;
    return { x: [left, right], y: [low - room, top + room], width: wide - MARGIN.left - MARGIN.right, height: high - MARGIN.top - MARGIN.bottom };
  }

  across(value) { const [low, high] = this.box.x; return MARGIN.left + ((value - low) / (high - low)) * this.box.width; }

  down(value) { const [low, high] = this.box.y; return MARGIN.top + (1 - (value - low) / (high - low)) * this.box.height; }

  axes(pen, line, muted, high) {
    pen.strokeStyle = line;
    pen.fillStyle = muted;
    pen.lineWidth = 1;
    pen.setLineDash([]);
    pen.textAlign = "right";
    for (const value of ticks(...this.box.y, 5)) {
      const y = Math.round(this.down(value)) + 0.5;
      pen.beginPath(); pen.moveTo(MARGIN.left, y); pen.lineTo(MARGIN.left + this.box.width, y); pen.stroke();
      pen.fillText(this.write.y(value), MARGIN.left - 8, y);
    }
    pen.textAlign = "center";
    for (const value of ticks(...this.box.x, Math.max(2, this.box.width / 110))) pen.fillText(this.write.x(value), this.across(value), high - MARGIN.bottom + 14);
  }

  curve(pen, { x, y, colour, dash }) {
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = 2;
    pen.lineJoin = "round";
    pen.setLineDash(dash);
    pen.beginPath();
    for (let place = 0; place < x.length; place++) pen.lineTo(this.across(x[place]), this.down(y[place]));
    pen.stroke();
    pen.setLineDash([]);
    pen.beginPath();
    pen.arc(this.across(x.at(-1)), this.down(y.at(-1)), 3, 0, 2 * Math.PI);
    pen.fill();
  }

  readOut(pen, muted, high) {
    const at = this.across(this.at);
    pen.strokeStyle = muted;
    pen.setLineDash([3, 3]);
    pen.beginPath(); pen.moveTo(at, MARGIN.top); pen.lineTo(at, high - MARGIN.bottom); pen.stroke();
    const near = this.series.map((one) => {
      let first = 0, last = one.x.length - 1;
      while (first < last) { const middle = (first + last) >> 1; if (one.x[middle] < this.at) first = middle + 1; else last = middle; }
      const place = first && this.at - one.x[first - 1] < one.x[first] - this.at ? first - 1 : first;
      return { one, x: one.x[place], y: one.y[place] };
    });
    near.sort((a, b) => b.y - a.y);
    const head = document.createElement("strong");
    head.textContent = this.write.x(this.series.length === 1 ? near[0].x : this.at, true);
    this.tip.replaceChildren(head, ...near.slice(0, 10).map(({ one, y }) => {
      const line = document.createElement("div"), name = document.createElement("span"), value = document.createElement("b");
      name.textContent = one.name;
      value.textContent = this.write.y(y, true);
      line.append(swatch(one), name, value);
      return line;
    }));
    this.tip.hidden = false;
    const right = at > MARGIN.left + this.box.width / 2;
    this.tip.style.left = right ? "auto" : `${at + 12}px`;
    this.tip.style.right = right ? `${this.canvas.clientWidth - at + 12}px` : "auto";
  }
}
