"""The results as a table and a chart in docs/performance.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLOURS = {
    "fedrelay": "#0072b2",
    "fedrelay inline": "#56b4e9",
    "plain PyTorch": "#999999",
    "pfl-research": "#e69f00",
    "Flower": "#d55e00",
    "fluke": "#009e73",
    "NVFlare": "#b8a800",
    "FedJAX": "#cc79a7",
    "operators alone": "#bbbbbb",
    "bound": "#dddddd",
}
"""Of those that are compared, in this order."""
WORKLOADS = "ABCDEHI"
LIMITS = ("operators alone", "bound")
"""What cannot be passed, or only by other operators."""
MOST = 3
"""Bars are at most so many times as long as fedrelay's."""
BEGIN, END = "<!-- results: made by make bench -->", "<!-- end of results -->"


def write(results: dict[str, Any], docs: Path) -> None:
    """Put the newest results into the page, which must have the two marks."""
    path = docs / "performance.md"
    text = path.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}")
    (docs / "performance.svg").write_text(chart(results))


def table(results: dict[str, Any]) -> str:
    machine = results["machine"]
    lines = [
        "",
        f"Measured on {machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['system']}, Python {machine['python']}, PyTorch {machine['torch']}.",
        "",
        "![examples per second, relative to fedrelay](performance.svg)",
        "",
    ]
    for name in sorted(key for key in results if key in list(WORKLOADS)):
        lines += rows(name, results[name])
    if "F" in results:
        found = results["F"]
        lines += [
            "**F**: 4 chains × 8 hops of empty work, a model of 3.2 MB; milliseconds a hop: "
            + ", ".join(f"{name} {value:.2f}" for name, value in found.items())
            + ".",
            "",
        ]
    if "G" in results:
        lines += many(results["G"])
    return "\n".join(lines)


def many(found: list[dict[str, Any]]) -> list[str]:
    """The table of growing numbers of clients; results of older versions have no more than memory and seconds."""
    lines = ["**G**: clients, 20 a round", ""]
    if any("first" not in row for row in found):
        lines += ["| clients | memory | added MB | ms a round |", "|---:|---|---:|---:|"]
        lines += [
            f"| {row['clients']:,} | {kept(row)} | {row['megabytes']:.0f} | {row['seconds'] * 1000:.1f} |"
            for row in found
        ]
        return [*lines, ""]
    long = [row for row in found if row["rounds"] > min(one["rounds"] for one in found)]
    lines += [
        "| clients | memory | seconds to the first round | bytes a client | at most | checkpoint, kB | ms a round |",
        "|---:|---|---:|---:|---:|---:|---:|",
    ]
    for row in (one for one in found if one not in long):
        few = row["clients"] < 100_000 or row["memory"]  # then it is not all clients that are measured
        each = "– | –" if few else f"{row['bytes']:.0f} | {row['most']:.0f}"
        lines.append(
            f"| {row['clients']:,} | {kept(row)} | {row['first']:.2f} | {each} | {row['checkpoint'] / 1000:.0f} | "
            f"{row['seconds'] * 1000:.1f} |"
        )
    for row in long:
        early, late = row["resident"].values()
        lines += [
            "",
            f"With {row['clients']:,} clients, memory none, the process has {early:.1f} MB after "
            f"{next(iter(row['resident']))} rounds and {late:.1f} MB after {row['rounds']:,}.",
        ]
    return [*lines, ""]


def kept(row: dict[str, Any]) -> str:
    return "a vector each, 8 MB of them resident" if row["memory"] else "none"


def rows(name: str, found: dict[str, Any]) -> list[str]:
    """The table of one workload: medians, and how many times faster fedrelay was (medians of the repetitions)."""
    lines = [
        f"**{name}**: {found['about']}",
        "",
        "| | examples/s | fedrelay is | setting |",
        "|---|---:|---:|---|",
    ]
    for who in COLOURS:
        if who not in found["rows"]:
            continue
        row = found["rows"][who]
        ratio = "" if who == "fedrelay" else f"{row['ratio']:.2f} ×"
        if who in LIMITS:
            ratio = f"{row['ratio']:.0%} of it"
        setting = f"{row['gflops']:.0f} GFLOPS, {row['setting']}" if who == "bound" else row["setting"]
        lines.append(f"| {who} {version(who, row)} | {row['median']:,.0f} | {ratio} | {setting} |")
    return [*lines, ""]


def version(who: str, row: dict[str, Any]) -> str:
    return "" if who in (*LIMITS, "fedrelay inline", "plain PyTorch") else str(row["version"])


def chart(results: dict[str, Any]) -> str:
    """Bars: the speed of everybody as a share of fedrelay's, workload by workload."""
    names = sorted(key for key in results if key in list(WORKLOADS))
    bar, gap, left, width = 14, 22, 130, 420
    parts: list[str] = []
    y = 10
    for name in names:
        found = results[name]["rows"]
        shares = {who: 1 / found[who]["ratio"] for who in COLOURS if who in found}
        longest = min(max(shares.values()), MOST)
        for who, share in shares.items():
            length = min(share, longest) / longest * width
            label = f"{name} {who}" if who == "fedrelay" else who
            value = f"{found[who]['median']:,.0f}" + (" (cut off)" if share > longest else "")
            parts.append(
                f'<text x="{left - 6}" y="{y + bar - 3}" text-anchor="end">{label}</text>'
                f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{bar - 2}" fill="{COLOURS[who]}"/>'
                f'<text x="{left + length + 4:.1f}" y="{y + bar - 3}">{value}</text>'
            )
            y += bar
        y += gap
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 110}" height="{y}" '
    style = 'font-family="sans-serif" font-size="11" fill="currentColor">'
    return f"{head}{style}\n" + "\n".join(parts) + "\n</svg>\n"
