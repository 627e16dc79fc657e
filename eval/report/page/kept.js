"use strict";
// Selections: which (layer, head) pairs keep which tokens of a prompt.
{
  const inflate = async (text) => {
    const letters = atob(text);
    const raw = new Uint8Array(letters.length);
    for (let place = 0; place < raw.length; place++) raw[place] = letters.charCodeAt(place);
    const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };

  /** One selection: positions of all pairs one after the other; pair p has those from starts[p] to starts[p + 1]. */
  const unpack = async ({name, heads, kept, data}, length) => {
    const starts = [0];
    const sizes = kept.flatMap((size) => (Array.isArray(size) ? size : Array(heads).fill(size)));
    for (const size of sizes) starts.push(starts.at(-1) + size);
    const found = {name, length, layers: kept.length, heads, starts, whole: data === null, positions: null};
    if (data === null) return found;
    const raw = await inflate(data);
    const positions = new Int32Array(starts.at(-1));
    let at = 0;
    for (let pair = 0; pair + 1 < starts.length; pair++) {
      let position = -1;
      for (let place = starts[pair]; place < starts[pair + 1]; place++) {
        let gap = 0;
        for (let shift = 0; ; shift += 7) {
          const byte = raw[at++];
          gap |= (byte & 127) << shift;
          if (byte < 128) break;
        }
        positions[place] = position += gap + 1;
      }
    }
    return {...found, positions};
  };

  /** The steps of a cell's stored row, the final cache last: their names, and one unpacked when it is asked for. */
  report.steps = (row) => {
    const known = new Map();
    return {
      names: row.steps.map((step) => step.name),
      get: (name) => {
        if (!known.has(name)) known.set(name, unpack(row.steps.find((step) => step.name === name), row.length));
        return known.get(name);
      },
    };
  };

  const pairs = (step, layer, head) => {
    const layers = layer === null ? [...Array(step.layers).keys()] : [layer];
    const heads = head === null ? [...Array(step.heads).keys()] : [head];
    return layers.flatMap((one) => heads.map((other) => one * step.heads + other));
  };

  /** Share of the chosen (layer, head) pairs that keep each token; null chooses all. Float32Array of the prompt's length. */
  report.shares = (step, layer, head) => {
    const shares = new Float32Array(step.length);
    if (step.whole) return shares.fill(1);
    const chosen = pairs(step, layer, head);
    for (const pair of chosen)
      for (let place = step.starts[pair]; place < step.starts[pair + 1]; place++) shares[step.positions[place]] += 1;
    for (let token = 0; token < step.length; token++) shares[token] /= chosen.length;
    return shares;
  };

  /** For one token, {layer, head, kept} of every pair. */
  report.keepers = (step, token) => {
    const found = [];
    for (let layer = 0; layer < step.layers; layer++)
      for (let head = 0; head < step.heads; head++) {
        const pair = layer * step.heads + head;
        const kept = step.whole || step.positions.subarray(step.starts[pair], step.starts[pair + 1]).includes(token);
        found.push({layer, head, kept});
      }
    return found;
  };
}
