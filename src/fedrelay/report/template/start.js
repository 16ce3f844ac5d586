// Plotly comes packed: a third of its size. Nothing is drawn before it is there.
async function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (sign) => sign.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

async function start() {
  const script = document.createElement("script");
  script.textContent = await unpacked("plotly");
  document.head.append(script);
  draw();
  // Plotly follows the window only; a scroll bar that appears changes the width of a chart too.
  const resized = new ResizeObserver((entries) => entries.forEach((entry) => Plotly.Plots.resize(entry.target)));
  charts.forEach((chart) => resized.observe(chart));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
  matchMedia("print").addEventListener("change", () => draw());
  document.documentElement.dataset.drawn = "";
}

start().catch((error) => {
  const note = document.createElement("p");
  note.className = "card";
  note.textContent = "The charts cannot be drawn: this browser may be too old. The tables below hold the numbers.";
  document.querySelector("main").prepend(note);
  console.error(error);
});
document.getElementById("print")?.addEventListener("click", () => window.print());
