"use strict";
// Data, the address, and small helpers. Text of a data set reaches the page through text nodes only.

const report = {
  views: {},      // name -> {title, show(root, state), update?(state) -> true if the shown page could be changed}
  ready: null,    // the overview, once it is loaded
  data: new Map(),
  waiting: new Map(),
};

/** Called by data files. */
report.receive = (name, text) => {
  const value = JSON.parse(text);
  report.data.set(name, value);
  report.waiting.get(name)?.resolve(value);
  report.waiting.delete(name);
};

/** Load data/NAME.js once; a page from a disk may run scripts but not fetch files. */
report.load = (name, again = false) => {
  if (!again && report.data.has(name)) return Promise.resolve(report.data.get(name));
  const known = report.waiting.get(name);
  if (known) return known.promise;
  const entry = {};
  entry.promise = new Promise((resolve, reject) => Object.assign(entry, {resolve, reject}));
  report.waiting.set(name, entry);
  const script = document.createElement("script");
  script.src = `data/${name.split("/").map(encodeURIComponent).join("/")}.js${again ? `?${Date.now()}` : ""}`;
  script.onload = () => script.remove();
  script.onerror = () => {
    script.remove();
    report.waiting.delete(name);
    entry.reject(new Error(`${script.src} is missing: write the report again`));
  };
  document.head.append(script);
  return entry.promise;
};

/** An element. Attributes by name; on* are listeners; strings become text nodes. */
report.el = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
};

// The address: #/view?name=value, so that every state has a link.

report.state = () => {
  const [view, query] = location.hash.replace(/^#\/?/, "").split("?");
  const known = report.ready?.tables.length === 0 ? ["analyses"] : Object.keys(report.views);
  return {view: known.includes(view) ? view : known.includes("tables") ? "tables" : known[0], ...Object.fromEntries(new URLSearchParams(query ?? ""))};
};

report.address = (changes) => {
  const {view, ...rest} = {...report.state(), ...changes};
  const kept = Object.entries(rest).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#/${view}${kept.length ? `?${new URLSearchParams(kept)}` : ""}`;
};

/** Change parts of the state; `quietly` leaves no entry in the history. */
report.go = (changes, quietly = false) => {
  const address = report.address(changes);
  if (quietly) {
    history.replaceState(null, "", address);
    report.render();
  } else location.hash = address;
};

/** The table that the state names, else the first; undefined where there are only analyses. */
report.table = (state = report.state()) =>
  report.ready.tables.find((table) => table.key === state.table) ?? report.ready.tables[0];

// Controls. Their ids let the focus survive a page that is made anew.

report.control = (id, label, box) => report.el("div", {class: "control"}, report.el("label", {for: id}, label), box);

report.choice = (id, label, options, value, change) => {
  const grouped = new Map();
  for (const option of options) {
    const made = report.el("option", {value: option.value, selected: option.value === value}, option.title);
    grouped.set(option.group ?? "", [...(grouped.get(option.group ?? "") ?? []), made]);
  }
  const children = [...grouped].map(([title, some]) => (title ? report.el("optgroup", {label: title}, some) : some));
  const box = report.el("select", {id, onchange: (event) => change(event.target.value)}, children.flat());
  box.value = value;
  return report.control(id, label, box);
};

/** Radio buttons in a row. */
report.switch = (id, label, options, value, change) =>
  report.el("fieldset", {class: "control switch"}, report.el("legend", {}, label),
    report.el("div", {class: "segments"}, options.map((option) => report.el("label", {},
      report.el("input", {
        type: "radio", name: id, id: `${id}-${option.value}`, value: option.value,
        checked: option.value === value, disabled: option.disabled, onchange: () => change(option.value),
      }),
      report.el("span", {}, option.title)))));

// Words and numbers.

report.minus = (text) => String(text).replace("-", "\u2212");
const FORMATS = [0, 1, 2, 3].map((digits) =>
  new Intl.NumberFormat("en", {minimumFractionDigits: digits, maximumFractionDigits: digits}));
report.number = (value, decimals = 1) =>
  value === null || value === undefined ? "\u2013" : report.minus(FORMATS[decimals].format(value));
report.signed = (value, decimals = 1) => {
  if (value === null || value === undefined) return "";
  const text = Math.abs(value).toFixed(decimals);
  return `${Number(text) === 0 ? "" : value > 0 ? "+" : "\u2212"}${text}`; // \u00b1 is for standard errors
};
/** A score with its standard error, a difference with its interval; one example has neither. */
report.withError = (score, error) => report.number(score, 2) + (error === null ? "" : ` \u00b1 ${report.number(error, 2)}`);
report.withInterval = ({mean, low, high}, decimals = 1) => report.signed(mean, 2)
  + (low === null ? "" : ` [${report.signed(low, decimals)}, ${report.signed(high, decimals)}]`);
report.interval = (low, high, n) =>
  low !== null ? `${report.number(low)} to ${report.number(high)}` : n === 1 ? "n = 1, no interval" : "none: a task has one example";
report.bytes = (value) => {
  if (value === null || value === undefined) return "\u2013";
  const [unit, size] = value >= 1e9 ? ["GB", 1e9] : value >= 1e6 ? ["MB", 1e6] : ["kB", 1e3];
  return `${report.number(value / size, value / size < 10 ? 2 : 1)} ${unit}`;
};
report.seconds = (value) =>
  value === null || value === undefined ? "\u2013" : `${report.number(value, value < 10 ? 2 : 1)} s`;

report.row = (table, cell) => table.rows.find((row) => row.cell === cell);
report.label = (row) => (row.budget === null ? row.title : `${row.title} ${row.budget}`);
report.taskTitle = (table, name) =>
  name === "average" ? table.average : table.tasks.find((task) => task.name === name)?.column ?? name;

/** One number of a cell, null where there is none. */
report.field = (table, cell, task, name) => table.cells[cell]?.[task]?.[table.fields.indexOf(name)] ?? null;

/** Seconds of one answer: prefill, selection and decoding. */
report.time = (table, cell, task) => {
  const parts = ["prefill_seconds", "selection_seconds", "decode_seconds"];
  const values = parts.map((name) => report.field(table, cell, task, name));
  return values.includes(null) ? null : values.reduce((sum, value) => sum + value, 0);
};

/** Paired difference cell - other of a task as {mean, error, low, high, pairs}, null where there are no pairs. */
report.difference = (differences, cell, other, task) => {
  const found = differences[`${cell}|${other}`]?.[task];
  if (found) return {mean: found[0], error: found[1], low: found[2], high: found[3], pairs: found[4]};
  const turned = differences[`${other}|${cell}`]?.[task];
  if (!turned) return null;
  const less = (value) => (value === null ? null : -value);
  return {mean: less(turned[0]), error: turned[1], low: less(turned[3]), high: less(turned[2]), pairs: turned[4]};
};

/** The cell of a method that another cell is compared with: at its budget, or without one. */
report.opponent = (table, row, method) =>
  table.rows.find((other) => other.method === method && (other.budget === row.budget || other.budget === null));

/** Whether the seconds of every answer are its own, not a share of its batch's. */
report.alone = (table) => table.rows.every((row) => Object.keys(table.cells[row.cell]).every((task) => report.field(table, row.cell, task, "alone")));

/** The tasks that have an answer, and the titles of those that have none. */
report.present = (table) => table.tasks.filter((task) => table.rows.some((row) => table.cells[row.cell][task.name]));
report.absent = (table) => table.tasks.filter((task) => !report.present(table).includes(task)).map((task) => task.column);

/** A screen so narrow that things stand one below the other. */
report.narrow = matchMedia("(max-width: 640px)");

/** How something is drawn: color, fill, symbol, rotate (degrees), dash. */
const drawn = ({light, dark, symbol, turn, filled, dash}) => {
  const color = `light-dark(${light}, ${dark})`;
  return {color, fill: filled ? color : "var(--panel)", symbol, rotate: turn, dash: dash.join(" ")};
};

/** The look of series number `place`, for what is no method. */
report.style = (place) => drawn(report.ready.styles[place % report.ready.styles.length]);

/** One look a method, the same everywhere and in the figures on paper. */
report.look = (method) => drawn(report.ready.looks[method]);
