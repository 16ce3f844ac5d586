// What is shown, as a file: the numbers of a picture, the picture as wide as a journal's column, a table for LaTeX.
function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const csvCell = (value) => (/[",\n]/.test(String(value ?? "")) ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? ""));
const csv = (rows) => rows.map((row) => row.map(csvCell).join(",")).join("\n") + "\n";
const plainText = (html) => new DOMParser().parseFromString(html ?? "", "text/html").body.textContent;
const fileName = (chart) => chart.dataset.figure.replace(/[^a-z0-9_-]+/gi, "-");

// One row for every point of every line or bar that is shown; of squares, one for each.
function numbersOf(chart) {
  const { data, layout } = shown(chart, screenLook());
  const [across, up] = [layout.xaxis, layout.yaxis].map((axis, place) => plainText(axis.title?.text) || "xy"[place]);
  const seen = data.filter((trace) => trace.visible !== false && trace.mode !== "text" && !trace.aside && trace.x);
  if (seen.some((trace) => trace.z)) {
    const cells = seen.flatMap((trace) => trace.z.flatMap((row, y) => row.map((z, x) => [trace.x[x], trace.y[y], z])));
    return [[across, up, "value"], ...cells];
  }
  const rounds = seen.some((trace) => trace.rounds), bands = seen.some((trace) => trace.low);
  const head = ["name", ...(rounds ? ["round"] : []), across, up, ...(bands ? ["low", "high"] : [])];
  const row = (trace, place) => [
    plainText(trace.name), ...(rounds ? [trace.rounds?.[place]] : []), trace.x[place], trace.y[place],
    ...(bands ? [trace.low?.[place], trace.high?.[place]] : []),
  ];
  return [head, ...seen.flatMap((trace) => Array.from(trace.x, (_, place) => row(trace, place)))];
}

function chosenColumn() {
  const option = document.getElementById("column")?.selectedOptions[0];
  return option ? { width: Number(option.dataset.width), points: Number(option.dataset.points) } : { width: 3.5, points: 8 };
}

// Drawn anew at its true size, so that letters have the size that was asked for; always on white, as paper is.
async function svgOf(chart) {
  const { width, points } = chosenColumn(), size = (points * 96) / 72;
  const { data, layout } = shown(chart, PAPER);
  const lined = (trace) => trace.type === "scatter" && trace.name && trace.visible !== false && !trace.aside;
  const named = layout.yaxis.ticktext ? 0 : data.filter(lined).length; // an axis of names needs no list of them
  const lines = named > 1 ? Math.ceil(named / (width > 5 ? 4 : 2)) : 0, wide = Math.round(width * 96);
  const own = layout.barmode || layout.height > 400 ? (layout.height * size) / FONT_SIZE : 0.62 * wide;
  const high = Math.round(own + lines * size * 1.7);
  const paper = {
    ...themed(layout, PAPER, size), width: wide, height: high, showlegend: named > 1,
    legend: { orientation: "h", traceorder: "normal", x: 0, y: 1, yanchor: "bottom", font: { size } },
    margin: { l: 4.2 * size, r: 3 * size, t: 0.6 * size + lines * size * 1.7, b: 3.6 * size },
    paper_bgcolor: "#ffffff",
  };
  const thin = data.map((trace) => ({
    ...trace, showlegend: !trace.aside && trace.showlegend !== false,
    ...(trace.line ? { line: { ...trace.line, width: trace.line.width && 1.3 } } : {}),
    ...(trace.mode?.includes("markers") ? { marker: { ...trace.marker, size: 3.5 } } : {}),
  }));
  const url = await Plotly.toImage({ data: thin, layout: paper, config }, { format: "svg", width: wide, height: high });
  const text = decodeURIComponent(url.slice(url.indexOf(",") + 1));
  return text.replace(/ width="\d+" height="\d+"/, ` width="${width.toFixed(3)}in" height="${(high / 96).toFixed(3)}in"`);
}

const LATEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "–": "--", "±": "$\\pm$", "×": "$\\times$", "…": "\\dots{}", "\u202f": "\\," };
const latexCell = (text) => text.replace(/[\\~^–±×…\u202f]|[&%$#_{}]/g, (sign) => LATEX[sign] ?? `\\${sign}`);

// A table of the page for booktabs; the best of a column is bold.
function latexOf(table, caption) {
  const cells = (row) => [...row.cells].map((cell) => {
    const best = cell.querySelector(".best");
    return best ? `\\textbf{${latexCell(best.textContent.trim())}}` : latexCell(cell.textContent.trim());
  });
  const rows = (part) => [...part.rows].map((row) => `    ${cells(row).join(" & ")} \\\\`);
  const columns = "l" + "r".repeat(table.tHead.rows[0].cells.length - 1);
  return [
    "% \\usepackage{booktabs}", "\\begin{table}", "  \\centering", `  \\caption{${latexCell(caption)}}`, `  \\begin{tabular}{${columns}}`,
    "    \\toprule", ...rows(table.tHead), "    \\midrule", ...rows(table.tBodies[0]), "    \\bottomrule", "  \\end{tabular}", "\\end{table}", "",
  ].join("\n");
}

const tableRows = (table) => [...table.rows].map((row) => [...row.cells].map((cell) => (cell.querySelector(".best") ?? cell).textContent.trim()));

const SAVING = {
  csv: (card) => {
    const chart = card.querySelector("[data-figure]");
    save(`${fileName(chart)}.csv`, "text/csv", csv(numbersOf(chart)));
  },
  svg: async (card) => {
    const chart = card.querySelector("[data-figure]");
    save(`${fileName(chart)}.svg`, "image/svg+xml", await svgOf(chart));
  },
  "table-csv": (card) => save("target.csv", "text/csv", csv(tableRows(card.querySelector("table")))),
  latex: (card) => save("target.tex", "application/x-tex", latexOf(card.querySelector("table"), card.querySelector(".caption").textContent.trim())),
};
for (const button of document.querySelectorAll("[data-save]")) {
  button.addEventListener("click", () => SAVING[button.dataset.save](button.closest(".card")));
}
