// One layer: why it lost what it lost, its scores, its mask, its curve, and whether to trust them.

const decoded = new Map();

// The grey values of an embedded PNG, row by row.
function greys(layer, kind) {
  const name = `${layer.index} ${kind}`;
  if (!decoded.has(name)) {
    const { png, rows, columns } = layer[kind];
    const image = new Image();
    image.src = `data:image/png;base64,${png}`;
    decoded.set(name, image.decode().then(() => {
      const canvas = make("canvas", { width: columns, height: rows });
      const brush = canvas.getContext("2d", { willReadFrequently: true });
      brush.drawImage(image, 0, 0);
      const rgba = brush.getImageData(0, 0, columns, rows).data;
      return Uint8Array.from({ length: rows * columns }, (_, i) => rgba[4 * i]);
    }));
  }
  return decoded.get(name);
}

const viridis = Array.from({ length: 256 }, (_, i) => d3.rgb(d3.interpolateViridis(i / 255)));

function safeRows(layer) {
  const safe = new Set(layer.protected.map((row) => Math.floor(row / layer.mask.tall)));
  return safe;
}

// The picture of a matrix in the colours of the page, as an address.
async function coloured(layer, kind, colours) {
  const values = await greys(layer, kind);
  const { rows, columns } = layer[kind];
  const canvas = make("canvas", { width: columns, height: rows });
  const brush = canvas.getContext("2d");
  const picture = brush.createImageData(columns, rows);
  const [gone, kept, safe] = [colours.pruned, colours.kept, colours.protected].map((c) => d3.rgb(c));
  const protectedRows = kind === "mask" ? safeRows(layer) : new Set();
  const mix = (to) => Array.from({ length: 256 }, (_, i) => d3.rgb(d3.interpolateRgb(gone, to)(i / 255)));
  const [plain, marked] = kind === "mask" ? [mix(kept), mix(safe)] : [viridis, viridis];
  for (let i = 0; i < values.length; i += 1) {
    const { r, g, b } = (protectedRows.has(Math.floor(i / columns)) ? marked : plain)[values[i]];
    picture.data.set([r, g, b, 255], 4 * i);
  }
  brush.putImageData(picture, 0, 0);
  return canvas.toDataURL();
}

function drawMatrix(kind, read) {
  return async (width, colours) => {
    const layer = layers[chosen.index];
    const href = await coloured(layer, kind, colours);
    const values = await greys(layer, kind);
    const { rows, columns, tall, wide } = layer[kind];
    const items = kind === "mask"
      ? [{ text: "kept", colour: colours.kept }, { text: "pruned", colour: colours.pruned }]
      : [];
    if (kind === "mask" && layer.protected.length)
      items.push({ text: "protected filter", colour: colours.protected });
    const space = width - 74;
    const size = Math.min(Math.max((space * layer.c_out) / layer.c_in, 110), 330);
    const svg = Plot.plot({
      width, height: size + 78, marginLeft: 48, marginRight: 26, marginTop: 34, marginBottom: 44,
      style: plotStyle,
      x: { domain: [0, layer.c_in], label: "input channel →", ticks: Math.min(6, layer.c_in), tickFormat: "d" },
      y: { domain: [layer.c_out, 0], label: null, ticks: Math.min(6, layer.c_out), tickFormat: "d" },
      marks: [
        (_, { x, y }) => {
          const group = d3.create("svg:g");
          group.append("image").attr("class", "matrix").attr("href", href).attr("x", x(0)).attr("y", y(0))
            .attr("width", x(layer.c_in) - x(0)).attr("height", y(layer.c_out) - y(0))
            .attr("preserveAspectRatio", "none").attr("style", "image-rendering:pixelated");
          group.append("rect").attr("x", x(0)).attr("y", y(0)).attr("fill", "none")
            .attr("stroke", colours.line).attr("width", x(layer.c_in) - x(0))
            .attr("height", y(layer.c_out) - y(0));
          // Not by colour alone: a protected filter has an arrow beside its row.
          if (kind === "mask")
            group.append("g").attr("fill", colours.protected).selectAll("path").data(layer.protected)
              .join("path").attr("class", "safe")
              .attr("d", (row) => `M${x(layer.c_in) + 3},${y(row + 0.5)}l9,-4v8z`);
          return group.node();
        },
      ],
    });
    if (kind === "scores") ramp(svg, width, layer.scores);
    const where = (event) => {
      const image = svg.querySelector("image.matrix").getBoundingClientRect();
      const column = Math.floor(((event.clientX - image.left) / image.width) * columns);
      const row = Math.floor(((event.clientY - image.top) / image.height) * rows);
      return row >= 0 && row < rows && column >= 0 && column < columns ? [row, column] : null;
    };
    svg.addEventListener("pointermove", (event) => {
      const at = where(event);
      if (!at) return;
      const [row, column] = at;
      const span = (i, n, size) => (n === 1 ? `${i}` : `${i * n}–${Math.min(i * n + n, size) - 1}`);
      readouts[kind].textContent = `filter ${span(row, tall, layer.c_out)}, channel ` +
        `${span(column, wide, layer.c_in)}: ${read(layer, values[row * columns + column], row)}`;
    });
    return key(svg, items);
  };
}

const readouts = { mask: make("output", { class: "readout" }), scores: make("output", { class: "readout" }) };
const scoreAt = ({ scores }, grey) => scores.low + (grey / 255) * (scores.high - scores.low);
const readScore = (layer, grey) => `score ${number(scoreAt(layer, grey))}`;
const readMask = (layer, grey, row) =>
  (layer.mask.tall * layer.mask.wide > 1 ? `${percent(grey / 255, 0)} kept` : grey ? "kept" : "pruned") +
  (safeRows(layer).has(row) ? ", protected" : "");

function ramp(svg, width, { low, high }) {
  const canvas = make("canvas", { width: 64, height: 1 });
  const brush = canvas.getContext("2d");
  for (let i = 0; i < 64; i += 1) {
    brush.fillStyle = d3.interpolateViridis(i / 63);
    brush.fillRect(i, 0, 1, 1);
  }
  const group = d3.select(svg).append("g").attr("transform", "translate(48,2)").attr("fill", "currentColor")
    .attr("text-anchor", "start");
  const [from, to] = [number(low), number(high)];
  const at = from.length * 7 + 6;
  group.append("text").attr("y", 11).text(from);
  group.append("image").attr("x", at).attr("width", 90).attr("height", 13)
    .attr("preserveAspectRatio", "none").attr("href", canvas.toDataURL());
  group.append("text").attr("x", at + 96).attr("y", 11).text(`${to} score`);
}

async function matrixRows(kind) {
  const layer = layers[chosen.index];
  const values = await greys(layer, kind);
  const { columns, tall, wide } = layer[kind];
  const safe = safeRows(layer);
  return Array.from(values, (grey, i) => {
    const row = Math.floor(i / columns);
    const place = { filter: row * tall, channel: (i % columns) * wide };
    return kind === "scores" ? { ...place, score: scoreAt(layer, grey) }
      : { ...place, kept: grey / 255, protected: safe.has(row) };
  });
}

function histogramRows() {
  const { edges, pruned, kept, protected: safe } = layers[chosen.index].histogram;
  return pruned.map((_, i) => ({
    from: edges[i], to: edges[i + 1], pruned: pruned[i], kept: kept[i], protected: safe[i],
  }));
}

function drawHistogram(width, colours) {
  const layer = layers[chosen.index];
  const { cut } = layer.histogram;
  const kinds = { pruned: colours.soft, kept: colours.kept, protected: colours.protected };
  const bars = histogramRows().flatMap((row) =>
    Object.keys(kinds).map((kind) => ({ ...row, kind, n: row[kind] })));
  const items = Object.entries(kinds).filter(([kind]) => kind !== "protected" || layer.protected.length)
    .map(([text, colour]) => ({ text, colour }));
  if (cut !== null) items.push({ text: `cut at ${number(cut)}`, colour: colours.ink, shape: "line", dash: "4 3" });
  const delta = facts.goal.delta;
  if (delta !== null) items.push({ text: `δ ${number(delta)}`, colour: colours.other, shape: "line" });
  const top = 16 + 17 * keyLines(items, width);
  return key(Plot.plot({
    width, height: 230 + top, marginLeft: 48, marginTop: top, marginBottom: 40, style: plotStyle,
    x: { label: "score →", ticks: 6 },
    y: { type: "sqrt", label: null, grid: true, tickFormat: rounded, ticks: 5 },
    color: { domain: Object.keys(kinds), range: Object.values(kinds) },
    marks: [
      Plot.rectY(bars, { x1: "from", x2: "to", y: "n", fill: "kind", inset: 0.4, order: Object.keys(kinds) }),
      cut === null ? null : Plot.ruleX([cut], { stroke: colours.ink, strokeDasharray: "4 3", strokeWidth: 2 }),
      delta === null ? null : Plot.ruleX([delta], { stroke: colours.other, strokeWidth: 2 }),
      Plot.ruleY([0]),
    ],
  }), items);
}

function layerCurveRows() {
  const layer = layers[chosen.index];
  return [layer.curve, ...layer.candidates].flatMap((curve, place) => curve.levels.map((level, i) => ({
    protected_share: curve.share, chosen: place === 0, level, accuracy: curve.accuracy[i],
  })));
}

function drawLayerCurve(width, colours) {
  const layer = layers[chosen.index];
  const rows = layerCurveRows().map((row) => ({ ...row, level: 100 * row.level }));
  const name = (share) => (share ? `${percent(share, 0)} of filters protected` : "nobody protected");
  const items = [{ text: `chosen: ${name(layer.curve.share)}`, colour: colours.kept, shape: "line" }];
  const others = layer.candidates.map((curve) => curve.share);
  const dashes = ["6 3", "1 3", "8 2 2 2", "3 3"];
  others.forEach((share, i) => items.push(
    { text: name(share), colour: colours.soft, shape: "line", dash: dashes[i % dashes.length] }));
  if (layer.curve.bar !== null)
    items.push({ text: `asked: ${percent(layer.curve.bar)}`, colour: colours.ink, shape: "line", dash: "2 3" });
  items.push({ text: `limit: ${percent(layer.limit)}`, colour: colours.chosen, shape: "line" });
  const top = 16 + 17 * keyLines(items, width);
  return key(Plot.plot({
    width, height: 240 + top, marginLeft: 48, marginRight: 26, marginTop: top, marginBottom: 40, style: plotStyle,
    x: { domain: [0, 100], label: "connections pruned →", tickFormat: (d) => `${d} %`, ticks: 5 },
    y: { domain: [0, 1], label: null, grid: true, tickFormat: (d) => `${100 * d} %`, ticks: 5 },
    marks: [
      ...others.map((share, i) => Plot.line(rows.filter((r) => r.protected_share === share && !r.chosen), {
        x: "level", y: "accuracy", stroke: colours.soft, strokeDasharray: dashes[i % dashes.length],
      })),
      Plot.line(rows.filter((row) => row.chosen), { x: "level", y: "accuracy", stroke: colours.kept, strokeWidth: 2.5 }),
      Plot.dot([{ x: 0, y: layer.curve.base }], { x: "x", y: "y", fill: colours.kept, r: 4 }),
      layer.curve.bar === null ? null
        : Plot.ruleY([layer.curve.bar], { stroke: colours.ink, strokeDasharray: "2 3", strokeWidth: 1.6 }),
      Plot.ruleX([100 * layer.limit], { stroke: colours.chosen, strokeWidth: 2 }),
      Plot.ruleY([0]),
      Plot.tip(rows.filter((row) => row.chosen), Plot.pointerX({
        x: "level", y: "accuracy", fill: colours.ground, fontSize: 13,
        title: (d) => `${d.level.toFixed(0)} % pruned\nSVM ${percent(d.accuracy)}`,
      })),
    ],
  }), items);
}

const measures = {
  informative: "in cells where they can be compared", singletons: "alone in their cell",
};
const occupancyRows = () =>
  Object.entries(layers[chosen.index].occupancy).map(([measure, value]) => ({ measure, value }));

function drawOccupancy(width, colours) {
  const layer = layers[chosen.index];
  const rows = Object.entries(measures).filter(([name]) => name in layer.occupancy)
    .map(([name, text]) => ({ text, value: 100 * layer.occupancy[name] }));
  const rest = ["cells_z", "mean_cell", "bins_x", "bins_y"].filter((name) => name in layer.occupancy);
  const words = { cells_z: "cells of Z", mean_cell: "samples per cell", bins_x: "bins of X", bins_y: "bins of Y" };
  const svg = Plot.plot({
    width, height: 196, marginLeft: 14, marginRight: 24, marginTop: 46, marginBottom: 34, style: plotStyle,
    x: { domain: [0, 100], label: "of all samples →", tickFormat: (d) => `${d} %`, grid: true, ticks: 5 },
    y: { domain: rows.map((row) => row.text), axis: null, padding: 0.55 },
    marks: [
      Plot.barX(rows, { x: "value", y: "text", fill: colours.kept }),
      Plot.text(rows, {
        x: 0, y: "text", text: (d) => `${d.text}: ${d.value.toFixed(1)} %`, textAnchor: "start", dy: -22,
        fill: "currentColor",
      }),
    ],
  });
  const told = rest.map((name) => `${words[name]} ${d3.format(",.1f")(layer.occupancy[name])}`);
  [told.slice(0, 2), told.slice(2)].forEach((part, line) => d3.select(svg).append("text").attr("x", 14)
    .attr("y", 13 + 17 * line).attr("fill", colours.soft).attr("text-anchor", "start").text(part.join(" · ")));
  return svg;
}
