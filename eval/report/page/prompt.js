"use strict";
// A prompt with shaded tokens. Every part holds its whole text, so that heights and the browser's own search are right;
// only parts near the window are cut into tokens, so that 31,000 of them cost no more than a screenful.
{
  const {el} = report;
  const LEAST = 120, MOST = 1500; // tokens of a part: it ends at a line's end if there is one in between
  report.LEVELS = [0.0001, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8]; // shares from which a stronger shade is used

  report.level = (share) => {
    let level = 0;
    while (level < report.LEVELS.length && share >= report.LEVELS[level]) level++;
    return level;
  };

  /** The prompt of data/T/prompts/DIGEST.js with what is looked up in it. */
  report.read = ({pieces, evidence}, answers) => {
    const starts = new Int32Array(pieces.length + 1);
    pieces.forEach((piece, token) => { starts[token + 1] = starts[token] + piece.length; });
    const text = pieces.join("");
    const read = {pieces, text, starts, evidence};
    const mask = (ranges) => {
      const found = new Uint8Array(pieces.length);
      for (const [first, end] of ranges) found.fill(1, first, end);
      return found;
    };
    read.answers = answers.flatMap((answer) => report.occurrences(read, answer, 500));
    return Object.assign(read, {isEvidence: mask(evidence), isAnswer: mask(read.answers)});
  };

  /** Token ranges [first, end) in which a text stands, whatever its case. */
  report.occurrences = (read, wanted, most = 5000) => {
    const needle = wanted.trim().toLowerCase();
    const text = (read.lower ??= read.text.toLowerCase());
    const found = [];
    // Lower case may be longer than the text in rare scripts; then nothing can be placed.
    if (!needle || text.length !== read.text.length) return found;
    for (let at = text.indexOf(needle); at >= 0 && found.length < most; at = text.indexOf(needle, at + needle.length))
      found.push([d3.bisectRight(read.starts, at) - 1, d3.bisectLeft(read.starts, at + needle.length)]);
    return found;
  };

  const parts = (pieces) => {
    const found = [];
    let first = 0;
    pieces.forEach((piece, token) => {
      const size = token + 1 - first;
      if ((size >= LEAST && piece.endsWith("\n")) || size >= MOST) {
        found.push([first, token + 1]);
        first = token + 1;
      }
    });
    if (first < pieces.length) found.push([first, pieces.length]);
    return found;
  };

  /** A scrollable pane. paint(classOf) shades; choose(token) marks one and shows it. */
  report.pane = (read, label, chosen) => {
    const box = el("div", {class: "prompt", tabindex: "0", role: "region", "aria-label": label});
    let classOf = () => "t";
    let current = null;
    const open = new Set();
    const made = parts(read.pieces).map(([first, end]) => {
      const part = el("div", {class: "part"}, read.text.slice(read.starts[first], read.starts[end]));
      // What it will take once it is laid out; the browser corrects it then.
      part.style.containIntrinsicBlockSize = `auto ${Math.ceil(part.textContent.split("\n").slice(0, -1).reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / 85)), 0) || 1)}lh`;
      return Object.assign(part, {first, end});
    });
    const nameOf = (token) => `${classOf(token)}${token === current ? " current" : ""}`;
    const cut = (part) => {
      const tokens = [];
      for (let token = part.first; token < part.end; token++) {
        const span = document.createElement("span");
        span.textContent = read.pieces[token];
        span.className = nameOf(token);
        span.token = token;
        tokens.push(span);
      }
      part.replaceChildren(...tokens);
      open.add(part);
    };
    const join = (part) => {
      part.textContent = read.text.slice(read.starts[part.first], read.starts[part.end]);
      open.delete(part);
    };
    const watcher = new IntersectionObserver((entries) => {
      for (const {isIntersecting, target} of entries) {
        if (isIntersecting && !open.has(target)) cut(target);
        else if (!isIntersecting && open.has(target)) join(target);
      }
    }, {root: box, rootMargin: "60% 0px"});
    const partOf = (token) => made[d3.bisectRight(made.map((part) => part.first), token) - 1];
    const repaint = () => {
      for (const part of open) for (const span of part.children) {
        const name = nameOf(span.token);
        if (span.className !== name) span.className = name;
      }
    };
    box.append(...made);
    made.forEach((part) => watcher.observe(part));
    const pane = {
      box,
      paint: (names) => { classOf = names; repaint(); },
      span: (token) => {
        const part = partOf(token);
        if (!open.has(part)) cut(part);
        return part.children[token - part.first];
      },
      choose: (token, scroll) => {
        current = token;
        repaint();
        if (token === null || !scroll) return;
        const span = pane.span(token);
        const {top, bottom} = span.getBoundingClientRect();
        const frame = box.getBoundingClientRect();
        if (top < frame.top || bottom > frame.bottom) box.scrollTop += (top + bottom) / 2 - (frame.top + frame.bottom) / 2;
      },
      close: () => watcher.disconnect(),
    };
    box.addEventListener("click", (event) => {
      const {token} = event.target;
      if (token !== undefined && getSelection().isCollapsed) chosen(token);
    });
    box.addEventListener("keydown", (event) => {
      const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
      if (!step) return;
      event.preventDefault();
      const first = [...open].sort((a, b) => a.first - b.first).find((part) => part.getBoundingClientRect().bottom > box.getBoundingClientRect().top);
      chosen(Math.max(0, Math.min(read.pieces.length - 1, current === null ? first?.first ?? 0 : current + step)));
    });
    return pane;
  };
}
