// Curves along what is chosen, averaged over as many rounds as are chosen, of every run or over seeds.
const parts = JSON.parse(document.getElementById("parts").textContent);
const FEW = 40; // curves of so few points have dots

// The points of one run: rounds, what had been spent by then, and the mean of all values of the last rounds, the point's
// own among them, as rolling_mean in runs/measures.py has it.
function pointsOf(run, key, over) {
  const points = [];
  run.round.forEach((round, place) => {
    const value = run.values[key][place];
    if (value !== null) points.push({ place, round, value });
  });
  let first = 0;
  return points.map((point, place) => {
    while (points[first].round <= point.round - over) first++;
    return { ...point, value: mean(points.slice(first, place + 1).map((one) => one.value)) };
  });
}

const along = (run, axis, place) => (run[axis.key] ? run[axis.key][place] / axis.divisor : null);

// What several seeds say together, in the rounds that all of them have: means, and how far they are apart.
function over(runs, key, axis, choice) {
  const byRound = new Map();
  for (const run of runs) {
    for (const point of pointsOf(run, key, choice.mean)) {
      if (!byRound.has(point.round)) byRound.set(point.round, []);
      byRound.get(point.round).push({ x: along(run, axis, point.place), y: point.value });
    }
  }
  const whole = [...byRound].filter(([, found]) => found.length === runs.length && found.every(({ x }) => x !== null));
  return whole.sort(([a], [b]) => a - b).map(([round, found]) => {
    const values = found.map(({ y }) => y), middle = mean(values), apart = deviation(values);
    const [low, high] = choice.seeds === "range" ? [Math.min(...values), Math.max(...values)] : [middle - apart, middle + apart];
    return { round, x: mean(found.map(({ x }) => x)), y: middle, low, high };
  });
}

function line(points, { factor, hover }, { name, colour, dash, meta, axis }) {
  return {
    type: "scatter", name, meta, mode: points.length > FEW ? "lines" : "lines+markers",
    x: points.map(({ x }) => x), y: points.map(({ y }) => factor * y), rounds: points.map(({ round }) => round),
    line: { color: colour, dash, width: 2 }, marker: { size: points.length > 1 ? 5 : 11, color: colour },
    hovertemplate: hover + (axis.key === "round" ? "" : " at %{x:.4~g}"),
  };
}

// A band is two lines without width, the area between them filled; `aside` keeps them out of lists.
function band(points, factor, colour) {
  const [red, green, blue] = [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
  const edge = { type: "scatter", mode: "lines", aside: true, visible: true, showlegend: false, hoverinfo: "skip", line: { width: 0, color: colour } };
  const x = points.map((point) => point.x);
  return [
    { ...edge, x, y: points.map(({ low }) => factor * low) },
    { ...edge, x, y: points.map(({ high }) => factor * high), fill: "tonexty", fillcolor: `rgba(${red},${green},${blue},0.16)` },
  ];
}

const groupDash = (runs) => (runs.length > 1 && !runs[0].reference ? "solid" : runs[0].dash);

function tracesOf(part, key, axis, choice, away) {
  const curve = part.curves[key];
  if (choice.seeds === "each") {
    return part.runs.map((run, meta) => {
      const points = pointsOf(run, key, choice.mean).map(({ place, round, value }) => ({ round, x: along(run, axis, place), y: value }));
      return line(points.filter(({ x }) => x !== null), curve, { name: run.label, colour: run.colour, dash: run.dash, meta, axis });
    });
  }
  const seen = part.groups.map((group) => ({ ...group, runs: group.runs.filter((run) => !away.has(run)).map((run) => part.runs[run]) }));
  const found = seen.filter(({ runs }) => runs.length).map((group) => ({ ...group, points: over(group.runs, key, axis, choice) }));
  const bands = found.filter(({ runs }) => runs.length > 1).flatMap(({ runs, points }) => band(points, curve.factor, runs[0].colour));
  const lines = found.map(({ label, runs, points }) => ({
    ...line(points, curve, { name: label, colour: runs[0].colour, dash: groupDash(runs), axis }), visible: true,
    ...(runs.length > 1 ? { low: points.map(({ low }) => curve.factor * low), high: points.map(({ high }) => curve.factor * high) } : {}),
  }));
  return [...bands, ...lines];
}

// The axis that was chosen, and on the main curve the target.
function layoutOf(part, key, spec, axis, choice) {
  const layout = { ...spec.layout, shapes: [], annotations: [], hovermode: axis.key === "round" ? "x unified" : "closest" };
  layout.xaxis = { title: { text: axis.title + (axis.log ? ", logarithmic" : "") }, zeroline: false, ...(axis.log ? { type: "log", dtick: 1, exponentformat: "SI" } : { rangemode: "tozero" }) };
  if (key !== "rounds" || choice.target === null) return layout;
  const y = part.curves[key].factor * choice.target, text = part.headline.share ? `${plain(y)} %` : plain(y);
  layout.shapes = [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { dash: "dot", width: 1.5 } }];
  const height = layout.yaxis.type === "log" ? Math.log10(y) : y;
  layout.annotations = [{ xref: "paper", x: 1, xanchor: "left", y: height, text, showarrow: false, xshift: 4 }];
  return layout;
}
