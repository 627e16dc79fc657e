"use strict";
// What stands behind a cell of the tables and behind a row.
{
  const {el} = report;
  /** What a table's colours compare with, in words. */
  report.against = (table, name) => ({full: "FullKV", paper: "the paper", ...Object.fromEntries(report.methods(table))})[name] ?? name;

  let tip = null;
  const closed = (always) => {
    if (tip && (always || !tip.pinned)) { tip.remove(); tip = null; }
  };
  report.closeTip = () => closed(false);
  addEventListener("keydown", (event) => { if (event.key === "Escape") closed(true); });
  addEventListener("pointerdown", (event) => { if (tip && !tip.contains(event.target)) closed(true); });
  addEventListener("hashchange", () => closed(true));

  /** Show a cell's numbers beside it; a pinned one stays until it is left. */
  report.tip = (anchor, table, {row, task, difference, against}, pinned) => {
    if (tip?.pinned && !pinned) return;
    closed(true);
    const field = (name) => report.field(table, row.cell, task, name);
    const lines = [
      ["Score", report.withError(field("score"), field("standard_error"))],
      ["95% interval", report.interval(field("low"), field("high"), field("n"))],
      ["Examples", field("records") ? `${field("n")} of ${field("records")}` : `${field("n")}`],
      ["In the paper", field("paper") === null ? null : report.number(field("paper"), 2)],
      [`To ${report.against(table, against)}`, difference && report.withInterval(difference)],
      ["KV entries", report.number(field("entries"), 0)],
      ["Stored", report.bytes(field("bytes"))],
      ["Prefill", report.seconds(field("prefill_seconds"))], ["Selection", report.seconds(field("selection_seconds"))],
      [field("alone") ? "Decoding" : "Decoding, share of a batch", report.seconds(field("decode_seconds"))],
    ].filter(([, text]) => text);
    tip = el("div", {class: "tip", role: pinned ? "dialog" : "tooltip", id: "tip", "aria-label": "Details of the cell"},
      el("strong", {}, `${report.label(row)}, ${report.taskTitle(table, task)}`),
      bar(field("score"), field("low"), field("high")),
      el("dl", {}, lines.map(([title, text]) => [el("dt", {}, title), el("dd", {}, text)])),
      pinned && el("a", {href: report.address({view: "examples", task: task === "average" ? null : task, a: row.cell,
        b: report.opponent(table, row, against === "paper" ? "full" : against)?.cell ?? null, show: null, against: null})}, "Examples of this cell"));
    tip.pinned = pinned;
    document.body.append(tip);
    const box = anchor.getBoundingClientRect();
    const left = Math.max(8, Math.min(innerWidth - tip.offsetWidth - 8, box.left + box.width / 2 - tip.offsetWidth / 2));
    const below = box.bottom + 6 + tip.offsetHeight < innerHeight;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${(below ? box.bottom + 6 : box.top - 6 - tip.offsetHeight) + scrollY}px`;
    if (pinned) tip.querySelector("a")?.focus({preventScroll: true});
  };

  /** The error bar of one score on the scale from 0 to 100. */
  const bar = (score, low, high) => {
    const svg = Plot.plot({
      className: "plot", width: 262, height: 40, marginLeft: 8, marginRight: 16, marginTop: 4, marginBottom: 18,
      x: {domain: [0, 100], ticks: 5, label: null, tickSize: 3}, y: {axis: null, domain: [0, 1]},
      marks: [
        low === null ? null : Plot.ruleY([0.5], {x1: low, x2: high, strokeWidth: 3, stroke: "var(--accent)"}),
        Plot.dot([score], {x: (value) => value, y: 0.5, r: 4, fill: "var(--accent)", stroke: "var(--panel)"}),
      ],
    });
    svg.setAttribute("aria-hidden", "true");
    return svg;
  };

  /** What made a row. */
  report.settings = (table, row) => {
    const tree = (value) => {
      if (value === null || typeof value !== "object") return document.createTextNode(String(value));
      if (Array.isArray(value) && value.every((one) => typeof one !== "object")) return document.createTextNode(value.join(", ") || "none");
      if (!Object.keys(value).length) return document.createTextNode("none");
      return el("dl", {class: "tree"}, Object.entries(value).map(([name, inner]) => [el("dt", {}, name), el("dd", {}, tree(inner))]));
    };
    const box = el("dialog", {class: "settings", "aria-label": `Settings of ${report.label(row)}`},
      el("form", {method: "dialog"}, el("button", {class: "close", "aria-label": "Close"}, "\u00d7")),
      el("h2", {}, report.label(row)), el("p", {}, el("code", {}, row.folder)),
      el("h3", {}, "What the answers depend on"), tree(row.identity),
      row.runs.map((run, place) => el("details", {}, el("summary", {}, `Run ${place + 1}: ${run.started ?? ""}`), tree(run))));
    box.addEventListener("close", () => box.remove());
    document.body.append(box);
    box.showModal();
  };
}
