// Every picture of the page, drawn by Plotly, and drawn again when something is hidden or chosen.
const specs = JSON.parse(document.getElementById("specs").textContent);
const charts = [...document.querySelectorAll("[data-figure]")];
const config = { displaylogo: false, displayModeBar: false };
const live = {}; // pictures that follow what is chosen on the page: by key, a function from hidden runs to a specification
const hidden = {}; // by part of the page, the runs that are not shown

function hiddenIn(element) {
  const root = element.closest("[data-part]");
  const part = root ? root.dataset.part : "";
  return (hidden[part] ??= new Set());
}

function shown(chart, look) {
  const key = chart.dataset.figure, away = hiddenIn(chart);
  const { data, layout } = live[key] ? live[key](away) : specs[key];
  const written = (trace) => (trace.mode === "text" ? { textfont: { color: look.text } } : {});
  const seen = (trace) => (trace.visible === undefined ? { visible: !away.has(trace.meta) } : {});
  return { data: data.map((trace) => ({ ...trace, ...written(trace), ...seen(trace) })), layout };
}

function draw(some = charts) {
  const look = screenLook();
  for (const chart of some) {
    const { data, layout } = shown(chart, look);
    Plotly.react(chart, data, themed(layout, look), config);
  }
}

function drawIn(root) {
  draw(charts.filter((chart) => root.contains(chart)));
}

for (const button of document.querySelectorAll("[data-run]")) {
  button.addEventListener("click", () => {
    const run = Number(button.dataset.run), away = hiddenIn(button);
    if (!away.delete(run)) away.add(run);
    button.setAttribute("aria-pressed", String(!away.has(run)));
    const root = button.closest("[data-part]");
    root.dispatchEvent(new Event("hidden"));
    drawIn(root);
  });
}
