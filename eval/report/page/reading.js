"use strict";
// The prompt of an example as one or two caches hold it: shades, search, the map of the whole, and one token's keepers.
{
  const {el} = report;
  const change = (name) => (value) => report.go({[name]: value}, true);

  /** Show what is wanted: own is the page's example, want its state, shown the selections of A (and B). */
  report.reading = (own, want, shown) => {
    const {read, places} = own;
    const shares = shown.map(({step}) => step && report.shares(step, want.layer, want.head < (step.heads ?? 0) ? want.head : null));
    const hits = report.occurrences(read, want.find);
    const isHit = new Uint8Array(read.pieces.length);
    hits.forEach(([first, end], place) => isHit.fill(place === want.at % hits.length ? 2 : 1, first, end));
    const marks = (token) => `${read.isEvidence[token] ? " ev" : ""}${read.isAnswer[token] ? " ans" : ""}${isHit[token] ? ` hit${isHit[token]}` : ""}`
      + `${read.pieces[token].includes("\n") && !read.pieces[token].trim() ? " nl" : ""}`;
    const shade = (values, side) => (token) => `t${values ? ` ${side}${report.level(values[token])}` : ""}${marks(token)}`;
    const gap = (token) => {
      const value = shares[0] && shares[1] ? shares[0][token] - shares[1][token] : 0;
      return `t ${value >= 0 ? "a" : "b"}${report.level(Math.abs(value))}${marks(token)}`;
    };
    const wanted = want.look === "two" ? 2 : 1;
    if (own.panes.length !== wanted) panes(own, wanted);
    own.panes.forEach((pane, place) => {
      pane.paint(want.look === "difference" ? gap : shade(shares[place], shown[place].side));
      pane.box.setAttribute("aria-label", `Prompt, shaded by ${want.look === "difference" ? "the difference of A and B" : report.label(shown[place].row)}`);
      pane.title.textContent = want.look === "difference" ? `${report.label(shown[0].row)} \u2212 ${report.label(shown[1].row)}`
        : `${report.label(shown[place].row)}${shown[place].step ? ` (${shown[place].step.name === "final" ? "final cache" : shown[place].step.name})` : ": not recorded"}`;
      pane.title.className = want.look === "difference" ? "" : `of-${shown[place].side}`;
      if (own.token !== want.token) pane.choose(want.token, true);
    });
    own.token = want.token;
    if (own.found !== `${want.find} ${want.at}`) {
      own.found = `${want.find} ${want.at}`;
      if (hits.length) own.panes.forEach((pane) => pane.choose(hits[want.at % hits.length][0], true));
    }
    finder(own, want, hits);
    legend(own, want, shown);
    map(own, want, shown, shares);
    token(own, want, shown, shares);
  };

  const panes = (own, count) => {
    own.places.panes.dataset.count = count;
    for (const pane of own.panes.splice(count)) {
      pane.close();
      pane.box.parentElement.remove();
    }
    while (own.panes.length < count) {
      const pane = report.pane(own.read, "Prompt", (token) => change("token")(String(token)));
      pane.title = el("h3");
      pane.box.addEventListener("scroll", () => {
        for (const other of own.panes) if (other !== pane && Math.abs(other.box.scrollTop - pane.box.scrollTop) > 1) other.box.scrollTop = pane.box.scrollTop;
      }, {passive: true});
      own.panes.push(pane);
      own.places.panes.append(el("div", {class: "pane"}, pane.title, pane.box));
    }
    for (const pane of own.panes.slice(1)) pane.box.scrollTop = own.panes[0].box.scrollTop;
    own.token = undefined;
  };

  const finder = (own, want, hits) => {
    const {places} = own;
    const go = (step) => report.go({at: hits.length ? (want.at + step + hits.length) % hits.length : 0}, true);
    if (!places.find.firstChild) places.find.append(
      el("input", {id: "find", type: "search", placeholder: "Find in the prompt", "aria-label": "Find in the prompt", value: want.find,
        oninput: (event) => report.go({find: event.target.value, at: null}, true)}),
      el("button", {type: "button", "aria-label": "Previous match", title: "Previous match"}, "\u2191"),
      el("button", {type: "button", "aria-label": "Next match", title: "Next match"}, "\u2193"), el("output", {}));
    const [box, back, on, said] = places.find.children;
    if (document.activeElement !== box) box.value = want.find;
    box.onkeydown = (event) => { if (event.key === "Enter") go(event.shiftKey ? -1 : 1); };
    [back.onclick, on.onclick] = [() => go(-1), () => go(1)];
    [back.disabled, on.disabled] = [!hits.length, !hits.length];
    said.textContent = want.find ? (hits.length ? `${want.at % hits.length + 1} of ${hits.length}` : "not found") : "";
  };

  const legend = (own, want, shown) => {
    const pairs = want.layer === null && want.head === null
      ? `${shown[0].step ? shown[0].step.layers * shown[0].step.heads : 0} (layer, head) pairs`
      : `chosen pairs`;
    const scale = (letter) => report.LEVELS.map((least, place) => el("span", {class: `t ${letter}${place + 1}`},
      place === 0 ? ">0" : `${Math.round(100 * least)}`));
    const both = want.look === "difference";
    own.places.legend.replaceChildren(el("p", {},
      both ? ["kept more by A ", scale("a"), " by B ", scale("b"), " % of pairs apart"]
        : [shown.map(({side}) => [`kept by ${side.toUpperCase()} `, scale(side)]), ` % of the ${pairs}`],
      own.read.evidence.length > 0 && el("span", {class: "t ev"}, "evidence"), own.read.answers.length > 0 && el("span", {class: "t ans"}, "answer"),
      own.read.evidence.length > 0 && el("button", {type: "button", onclick: () => report.nextOf(own, own.read.evidence)}, "Next evidence (e)")));
  };

  /** Go to the first range behind the chosen token, around the end. */
  report.nextOf = (own, ranges) => {
    const next = ranges.find(([first]) => first > (own.token ?? -1)) ?? ranges[0];
    if (next) change("token")(String(next[0]));
  };

  /** Kept share along the whole prompt; a click goes there. */
  const map = (own, want, shown, shares) => {
    const length = own.read.pieces.length;
    const bins = Math.min(length, 140);
    const edges = d3.range(bins + 1).map((bin) => Math.round((bin * length) / bins));
    const means = shares.map((values) => values && d3.range(bins).map((bin) => d3.mean(values.subarray(edges[bin], edges[bin + 1]))));
    const rows = means.flatMap((values, place) => (values ?? []).map((value, bin) =>
      ({x1: edges[bin], x2: edges[bin + 1], value: place ? -value : value, side: place ? "b" : "a"})));
    const box = own.places.map;
    const svg = Plot.plot({
      className: "plot", width: Math.max(260, box.clientWidth), height: shares.length > 1 ? 92 : 64, marginTop: 4, marginBottom: 20, marginLeft: 4, marginRight: 18,
      ariaLabel: "Share of pairs that keep each part of the prompt", x: {domain: [0, length], label: null, ticks: 6, tickSize: 3}, y: {axis: null, type: "sqrt"},
      marks: [
        Plot.rectY(rows, {x1: "x1", x2: "x2", y: "value", fill: (row) => `var(--side-${row.side})`, inset: 0}),
        Plot.ruleY([0], {stroke: "currentColor", strokeOpacity: 0.4}),
        Plot.ruleX(own.read.evidence.map(([first, end]) => (first + end) / 2), {stroke: "var(--evidence)", strokeWidth: 1.5, strokeOpacity: 0.8}),
        want.token === null ? null : Plot.ruleX([want.token], {stroke: "currentColor", strokeWidth: 2}),
      ],
      color: {type: "identity"},
    });
    svg.setAttribute("role", "img");
    svg.addEventListener("click", (event) => {
      const at = Math.round(svg.scale("x").invert(event.clientX - svg.getBoundingClientRect().left));
      change("token")(String(Math.max(0, Math.min(length - 1, at))));
    });
    box.replaceChildren(svg);
  };

  /** Which pairs keep the chosen token. */
  const token = (own, want, shown, shares) => {
    const {places, read} = own;
    if (want.token === null || !(want.token < read.pieces.length)) {
      places.token.replaceChildren(el("p", {class: "hint"}, "Click a token, or use the arrow keys in the text, to see which layers and heads keep it."));
      return;
    }
    const grids = shown.filter(({step}) => step).map(({step, row, side}) => {
      const svg = Plot.plot({
        className: "plot", width: 280, height: 48 + Math.min(10, Math.max(4, 300 / step.layers)) * step.layers, marginLeft: 32, marginTop: 18, marginBottom: 28,
        x: {label: "head", domain: d3.range(step.heads), ticks: step.heads > 12 ? d3.range(0, step.heads, 4) : undefined},
        y: {label: "layer", labelAnchor: "top", domain: d3.range(step.layers), ticks: d3.range(0, step.layers, step.layers > 12 ? 5 : 1)},
        color: {type: "identity"},
        marks: [Plot.cell(report.keepers(step, want.token), {x: "head", y: "layer", inset: 0.5,
          fill: ({kept}) => (kept ? `var(--side-${side})` : "var(--faint)")})],
      });
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", `Layers and heads of ${report.label(row)} that keep the token`);
      const kept = report.keepers(step, want.token).filter((pair) => pair.kept).length;
      return el("figure", {}, el("figcaption", {}, `${report.label(row)}: ${kept} of ${step.layers * step.heads} pairs keep it`), svg);
    });
    places.token.replaceChildren(el("h3", {}, `Token ${want.token} `, el("code", {}, JSON.stringify(read.pieces[want.token]))), ...grids);
  };
}
