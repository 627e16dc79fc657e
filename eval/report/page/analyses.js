"use strict";
// What `python -m eval.analysis` measured, as figures with their data. The columns say how to draw them.
{
  const {el} = report;
  const ACROSS = ["dispersion", "layer", "step", "x"];              // what goes along the x axis, the first that is there
  const APART = ["measure", "dataset", "change", "facts", "step"];          // one figure for each value
  const NUMBERS = ["mean", "error", "low", "high", "n", "paper", "p", "of_prompt", "difference", "difference_error", "distance"];
  const MOST = 24; // figures of one file

  const rowsOf = ({columns, rows}) => rows.map((row) => Object.fromEntries(columns.map((name, place) => [name, row[place]])));

  const figures = (file, data) => {
    const rows = rowsOf(data);
    const value = ["mean", "distance"].find((name) => data.columns.includes(name));
    const columns = data.columns.map((name) => [name, name]);
    if (!value || !rows.length) return [report.details(file.title, rows, columns, true)];
    const x = ACROSS.find((name) => data.columns.includes(name) && rows.every((row) => typeof row[name] === "number" || row[name] === null));
    const apart = APART.filter((name) => name !== x && data.columns.includes(name) && new Set(rows.map((row) => row[name])).size > 1);
    const words = data.columns.filter((name) => ![x, "against", ...apart, ...NUMBERS].includes(name) && new Set(rows.map((row) => row[name])).size > 1);
    const said = new Map(report.ready.tables.flatMap((table) => report.methods(table)));
    const series = (row) => [...new Set(words.map((name) => (name === "method" ? said.get(row[name]) ?? row[name] : row[name])))].filter((word) => word !== null && word !== "").join(" ") || file.title;
    const groups = [...Map.groupBy(rows.filter((row) => row[value] !== null), (row) => 
      apart.map((name) => (typeof row[name] === "number" ? `${name} ${row[name]}` : row[name])).join(", "))];
    const names = [...new Set(rows.map(series))];
    const byMethod = words.includes("method") && (!x || new Set(rows.map((row) => row.method)).size === names.length);
    const look = (row) => (byMethod ? report.look(row.method) : report.style(names.indexOf(series(row))));
    const plain = (value) => String(Number(value.toPrecision(4)));
    const drawn = groups.slice(0, MOST).map(([title, some]) => {
      const own = some.map((row) => ({...row, name: series(row), value: row[value], ...look(row),
        low: row.low ?? null, high: row.high ?? null}));
      const ranged = own.filter((row) => row.low !== null);
      const tip = (row) => [row.name, x && `${x} ${row[x]}`, `${report.number(row.value, 3)}`,
        row.low !== null && `95%: ${report.number(row.low, 3)} to ${report.number(row.high, 3)}`, row.n && `n = ${row.n}`].filter(Boolean).join("\n");
      const shared = report.identity;
      return report.figure({
        title: title || file.title, about: `${value} of ${names.length} series`, rows: some, columns, name: `${file.title}-${title}`.replaceAll(/\W+/g, "-"),
        plot: () => (x ? {
          ...shared, height: 260, marginLeft: 44, marginBottom: 34, 
          x: {label: x, grid: true, tickFormat: plain, inset: 8, ticks: new Set(own.map((row) => row[x])).size <= 10 ? [...new Set(own.map((row) => row[x]))] : 8},
          y: {label: value, grid: true, nice: true, tickFormat: plain},
          marks: [
            Plot.areaY(ranged, {x, y1: "low", y2: "high", z: "name", fill: "color", fillOpacity: 0.1}),
            report.lines(own, {x, y: "value", z: "name"}),
            report.dots(own, {x, y: "value", r: 3.5}),
            Plot.tip(own, Plot.pointer({x, y: "value", title: tip})),
          ],
        } : {
          ...shared, height: 46 + 19 * new Set(own.map((row) => row.name)).size, marginLeft: 170, marginTop: 6, marginBottom: 36,
          x: {label: value, grid: true, nice: true, tickFormat: plain}, y: {label: null, domain: [...new Set(own.map((row) => row.name))], tickSize: 0},
          marks: [
            Plot.ruleY(ranged, {y: "name", x1: "low", x2: "high", stroke: "color", strokeWidth: 2}),
            report.dots(own, {y: "name", x: "value"}),
            Plot.tip(own, Plot.pointerY({y: "name", x: "value", title: tip})),
          ],
        }),
      });
    });
    const left = groups.length - drawn.length;
    const key = x && names.length > 1 ? report.legend([...new Map(rows.map((row) => [series(row), look(row)]))]) : null;
    const body = el("div", {class: drawn.length > 1 ? "multiples wide" : ""}, drawn);
    return left > 0 ? [key, body, el("p", {class: "hint"}, `${left} more are in the CSV file.`)] : [key, body];
  };

  const show = async (root, state) => {
    const {analyses} = report.ready;
    root.append(el("h1", {}, "Analyses"));
    if (!analyses.length) {
      root.append(el("p", {class: "hint"}, "None has been made: ", el("code", {}, `${report.ready.commands.analysis} table1 model=smollm2 data=synthetic`),
        " measures the first, then write the report again."));
      return;
    }
    if (!report.ready.tables.length) root.append(el("p", {class: "hint"}, "No answers are stored: only analyses are shown. ", report.ready.problems.join("; ")));
    const title = (one) => [one.name, ...one.where.split("/").filter(Boolean)].map((part, place) => (place ? part.replace(`${one.name}-`, "") : part)).join(" \u00b7 ");
    const place = Math.min(Number(state.analysis ?? 0), analyses.length - 1);
    const chosen = analyses[place];
    root.append(el("div", {class: "controls"}, report.choice("analysis", "Analysis",
      analyses.map((one, number) => ({value: String(number), title: title(one)})), String(place), (value) => report.go({analysis: value}, true))));
    for (const file of chosen.files) {
      const section = el("section", {}, el("h2", {}, file.title, " ", el("a", {class: "csv", href: file.csv, download: ""}, "CSV")));
      root.append(section);
      if (file.data) section.append(...figures(file, await report.load(file.data)).filter(Boolean));
      else section.append(el("p", {class: "hint"}, "Single examples: in the CSV file."));
    }
  };

  report.views.analyses = {title: "Analyses", menu: true, show};
}
