"use strict";
// Figures by Observable Plot and data tables by Tabulator, with what both of them share here.
{
  const {el} = report;

  // Drawings wait in line, so that many of them never hold up the page: as many a frame as fit into BUDGET.
  const BUDGET = 10; // milliseconds
  const line = new Set();
  const draw = () => {
    const begun = performance.now();
    for (const place of line) {
      line.delete(place);
      if (place.isConnected) place.draw();
      if (performance.now() - begun > BUDGET) break;
    }
    if (line.size) requestAnimationFrame(draw);
  };
  const queue = (place) => {
    if (!line.size) requestAnimationFrame(draw);
    line.add(place);
  };

  const watcher = new IntersectionObserver((entries) => {
    for (const {isIntersecting, target} of entries) if (isIntersecting) queue(target);
  }, {rootMargin: "300px"});

  const sizes = new ResizeObserver((entries) => {
    for (const {target} of entries) if (target.drawn && Math.abs(target.clientWidth - target.drawn) > 4) queue(target);
  });

  /** A figure drawn once it comes near the window (at once if it is the first), with its data as a table and as CSV below.
      plot: from a width in pixels to Plot's options. rows: objects; columns: [field, title] pairs. */
  report.figure = ({title, about, plot, rows, columns, name, first = false}) => {
    const place = el("div", {class: "drawing"});
    place.draw = () => {
      watcher.unobserve(place);
      const width = Math.max(240, place.clientWidth);
      place.drawn = place.clientWidth;
      const svg = Plot.plot({
        className: "plot", width, ariaLabel: title, ariaDescription: about, style: {background: "none"}, ...plot(width),
      });
      const drawing = svg.tagName === "svg" ? svg : svg.querySelector("svg");
      drawing?.setAttribute("role", "img");
      place.replaceChildren(svg);
    };
    if (first) queueMicrotask(place.draw); // once it is on the page, without waiting for the line
    else watcher.observe(place);
    sizes.observe(place);
    return el("figure", {}, el("figcaption", {}, title), place, columns && report.details(name ?? title, rows, columns));
  };

  /** Data under a figure: a table that is made when opened. */
  report.details = (name, rows, columns, open = false) => {
    const box = el("div");
    const made = el("details", {class: "data", open}, el("summary", {}, "Data"), box);
    const fill = () => {
      if (!made.open || box.firstChild) return;
      const place = el("div");
      let table = null;
      box.append(el("button", {type: "button", onclick: () => table.download("csv", `${name}.csv`)}, "Download CSV"), place);
      table = report.grid(place, {
        data: rows, height: rows.length > 12 ? 360 : undefined, layout: "fitDataStretch",
        columns: columns.map(([field, title]) => ({
          field, title, formatter: report.text, headerHozAlign: typeof rows[0]?.[field] === "number" ? "right" : "left",
          hozAlign: typeof rows[0]?.[field] === "number" ? "right" : "left"})),
      });
    };
    made.addEventListener("toggle", fill);
    if (open) queueMicrotask(fill);
    return made;
  };

  /** Tabulator's formatter for plain values: a text node, never markup. */
  report.text = (cell) => {
    const value = cell.getValue();
    const shown = typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(5)) : value;
    return document.createTextNode(shown ?? "\u2013");
  };

  /** Titles as text nodes too: names of methods and columns come from files. */
  const plainTitles = (columns) => columns.map((column) => ({
    titleFormatter: (cell) => document.createTextNode(cell.getValue() ?? ""),
    ...column, ...(column.columns ? {columns: plainTitles(column.columns)} : {})}));

  report.grid = (place, options) => new Tabulator(place, {
    layout: "fitData", placeholder: "Nothing to show", columnDefaults: {resizable: false, headerSortTristate: true},
    ...options, columns: plainTitles(options.columns),
  });

  const icons = new Map();
  const icon = ({color, symbol}) => {
    const key = `${color} ${symbol}`;
    if (!icons.has(key)) icons.set(key, Plot.plot({
      className: "plot", width: 16, height: 16, margin: 0, x: {axis: null}, y: {axis: null}, symbol: {type: "identity"},
      marks: [Plot.dot([[0, 0]], {frameAnchor: "middle", x: null, y: null, r: 5, symbol, fill: color})],
    }));
    const svg = icons.get(key).cloneNode(true);
    svg.setAttribute("aria-hidden", "true");
    return svg;
  };

  /** Key of methods, colour and symbol and name; a press hides one or shows it again. */
  report.key = (table, state) => {
    const hidden = report.hidden(state);
    const press = (method) => report.go({hide: [...hidden.symmetricDifference(new Set([method]))].join(",")}, true);
    return el("div", {class: "key", role: "group", "aria-label": "Methods shown"}, report.methods(table).map(([method, title]) =>
      el("button", {type: "button", id: `key-${method}`, "aria-pressed": String(!hidden.has(method)), onclick: () => press(method)},
        icon(report.look(method)), title)));
  };

  /** Key of [name, {color, symbol}] pairs that are no methods. */
  report.legend = (pairs) => el("ul", {class: "key", "aria-label": "Key"}, pairs.map(([name, look]) => el("li", {}, icon(look), name)));

  report.hidden = (state) => new Set((state.hide ?? "").split(",").filter(Boolean));

  report.methods = (table) => [...new Map(table.rows.map((row) => [row.method, row.title]))];

  /** Options of tasks: the average first, then by group. */
  report.tasks = (table) => [
    {value: "average", title: table.average},
    ...table.tasks.map((task) => ({value: task.name, title: `${task.column} (${task.name})`, group: task.group})),
  ];
}
