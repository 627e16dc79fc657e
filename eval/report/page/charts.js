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
      plot: from a width in pixels to Plot's options. after: what is done to the drawing then.
      rows: objects; columns: [field, title] pairs. */
  report.figure = ({title, about, plot, rows, columns, name, first = false, after = null}) => {
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
      after?.(svg, width);
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

  // Marks and lines. Rows have what `report.look` gives; a hollow mark is filled with the ground.

  report.identity = {color: {type: "identity"}, symbol: {type: "identity"}};
  report.dots = (rows, {x, y, r = 4}) =>
    Plot.dot(rows, {x, y, r, symbol: "symbol", rotate: "rotate", fill: "fill", stroke: "color", strokeWidth: 1.4});
  report.lines = (rows, {x, y, z = "method"}) => [...Map.groupBy(rows, (row) => row[z]).values()].map((some) =>
    Plot.line(some, {x, y, z, stroke: "color", strokeDasharray: some[0].dash, strokeWidth: 1.6}));

  /** Rows with `at`: their `field` moved aside by method on a logarithmic axis, so that marks stand beside each other.
      [low, high] lie `pixels` apart; marks lie `most` pixels from each other, all of one value within `room`. */
  report.dodge = (rows, field, [low, high], pixels, {most = 7, room = 48} = {}) => {
    const names = [...new Set(rows.map((row) => row.method))];
    const step = Math.min(most, room / names.length);
    const factor = high > low ? (high / low) ** (step / pixels) : 1;
    return rows.map((row) => ({...row, at: row[field] * factor ** (names.indexOf(row.method) - (names.length - 1) / 2)}));
  };

  const icons = new Map();
  const icon = (look, line) => {
    const key = `${JSON.stringify(look)} ${line}`;
    const wide = line ? 34 : 16;
    if (!icons.has(key)) icons.set(key, Plot.plot({
      ...report.identity, className: "plot", width: wide, height: 16, margin: 0, marginLeft: 1, marginRight: 1, x: {axis: null, domain: [-1, 1]}, y: {axis: null, domain: [-1, 1]},
      marks: [
        !line ? null : Plot.ruleY([look], {y: () => 0, stroke: "color", strokeDasharray: look.dash, strokeWidth: 1.6}),
        report.dots([look], {x: () => 0, y: () => 0, r: 4.5}),
      ],
    }));
    const svg = icons.get(key).cloneNode(true);
    svg.setAttribute("aria-hidden", "true");
    return svg;
  };

  const MANY = 12; // methods whose key is folded where the screen is narrow
  let unfolded = null; // whether the reader wants to see a long key

  /** Key of methods, their look and name; a press hides one or shows it again. line: whether they have lines.
      which: of the [method, title] pairs those that are in it. */
  report.key = (table, state, line = false, which = () => true) => {
    const hidden = report.hidden(state);
    const press = (method) => report.go({hide: [...hidden.symmetricDifference(new Set([method]))].join("|")}, true);
    const methods = report.methods(table).filter(which);
    const key = el("div", {class: "key", role: "group", "aria-label": "Methods shown"}, methods.map(([method, title]) =>
      el("button", {type: "button", id: `key-${method}`, "aria-pressed": String(!hidden.has(method)), onclick: () => press(method)},
        icon(report.look(method), line), title)));
    if (methods.length <= MANY) return key;
    const open = unfolded ?? !report.narrow.matches;
    return el("details", {class: "many", open},
      el("summary", {onclick: (event) => { unfolded = !event.target.parentNode.open; }}, `${methods.length} methods`), key);
  };

  /** Key of [name, look] pairs that are no methods. */
  report.legend = (pairs) => el("ul", {class: "key", "aria-label": "Key"}, pairs.map(([name, look]) => el("li", {}, icon(look, true), name)));

  report.hidden = (state) => new Set((state.hide ?? "").split("|").filter(Boolean));

  report.methods = (table) => [...new Map(table.rows.map((row) => [row.method, row.title]))];

  /** Options of tasks: the average first, then by group. */
  report.tasks = (table) => [
    {value: "average", title: table.average},
    ...table.tasks.map((task) => ({value: task.name, title: `${task.column} (${task.name})`, group: task.group})),
  ];
}
