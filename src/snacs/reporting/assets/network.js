// The network as a whole: what each layer loses, what it costs, how the signal flows, all curves.

const chosen = { index: null, listeners: [] };

function choose(index, from) {
  if (index === chosen.index || !layers[index]) return;
  chosen.index = index;
  for (const listener of chosen.listeners) listener(layers[index], from);
}

// Marks drawn one per layer become a way to choose it.
function choosable(svg, selector, list) {
  d3.select(svg).selectAll(selector).each(function (_, i) {
    const layer = list[i];
    if (!layer) return;
    d3.select(this).style("cursor", "pointer").on("click", () => choose(layer.index, "chart"));
    this.dataset.layer = layer.index;
  });
  return svg;
}

const told = (layer) =>
  layer.kept_because !== null
    ? `${layer.name}\nkept: ${layer.kept_because}`
    : `${layer.name}\n${percent(layer.pruned)} of ${count(layer.connections)} connections gone`;

function drawCompression(width, colours) {
  const items = [
    { text: "connections gone", colour: colours.kept },
    { text: "limit", colour: colours.chosen, shape: "line" },
    { text: "kept whole", colour: colours.rest },
  ];
  const top = 14 + 17 * keyLines(items, width);
  const bottom = axisSpace(width - 60, layers);
  const svg = Plot.plot({
    width, height: 250 + bottom + top - 30, marginLeft: 48, marginRight: 12, marginTop: top,
    marginBottom: bottom, style: plotStyle, x: layerAxis(width - 60, layers),
    y: { label: null, domain: [0, 100], grid: true, tickFormat: (d) => `${d} %` },
    marks: [
      Plot.barY(layers, {
        x: "index", y: 100, fill: (d) => (d.kept_because === null ? colours.pruned : colours.rest),
      }),
      Plot.barY(layers, {
        x: "index", y: (d) => 100 * d.pruned, fill: colours.kept, className: "gone",
      }),
      Plot.tickY(planned, {
        x: "index", y: (d) => 100 * d.limit, stroke: colours.chosen, strokeWidth: 2,
      }),
      Plot.tip(layers, Plot.pointerX({
        x: "index", y: (d) => 100 * d.pruned, title: told, fill: colours.ground,
        fontSize: 13, lineWidth: 40,
      })),
      Plot.ruleY([0]),
    ],
  });
  choosable(svg, "g[aria-label='bar']:not(.gone) rect", layers);
  choosable(svg, "g.gone rect", layers);
  return key(svg, items);
}

function drawCost(dense, kept, unit) {
  return (width, colours) => {
    const items = [
      { text: "left", colour: colours.kept }, { text: "dense", colour: colours.rest },
    ];
    const bottom = axisSpace(width - 60, layers);
    const svg = Plot.plot({
      width, height: 230 + bottom, marginLeft: 52, marginRight: 12, marginTop: 34,
      marginBottom: bottom, style: plotStyle, x: layerAxis(width - 60, layers),
      y: { label: null, grid: true, tickFormat: rounded, ticks: 5 },
      marks: [
        Plot.barY(layers, { x: "index", y: dense, fill: colours.rest }),
        Plot.barY(layers, { x: "index", y: kept, fill: colours.kept, className: "gone" }),
        Plot.tip(layers, Plot.pointerX({
          x: "index", y: dense, fill: colours.ground, fontSize: 13, lineWidth: 40,
          title: (d) => `${d.name}\n${count(d[kept])} of ${count(d[dense])} ${unit} left`,
        })),
        Plot.ruleY([0]),
      ],
    });
    choosable(svg, "g[aria-label='bar']:not(.gone) rect", layers);
    choosable(svg, "g.gone rect", layers);
    return key(svg, items);
  };
}

// Each layer is a column as tall as it has filters. What is filled is what is left of it.
function drawFlow(width, colours) {
  const margin = Math.min(44, 4 * longest); // for the first names, which lean to the left
  const step = Math.max((width - margin) / (layers.length + 1), 13);
  const whole = step * (layers.length + 1) + margin;
  const named = step >= 15;
  const arcs = facts.flow.shortcuts;
  const reach = d3.max(arcs, ([a, b]) => b - a) ?? 0;
  const above = 34 + Math.min(90, reach * step * 0.45);
  const tall = 150;
  const height = above + tall + (named ? nameSpace : 30);
  const middle = above + tall / 2;
  const scale = d3.scaleSqrt([0, d3.max(layers, (d) => d.c_out)], [0, tall]);
  const x = (index) => margin + step * (index + 0.25);
  const body = step * 0.5;
  const left = (d) => scale(d.c_out) * (d.weights_kept / d.weights);
  const svg = d3.create("svg").attr("width", whole).attr("height", height)
    .attr("viewBox", `0 0 ${whole} ${height}`).attr("font-size", 12);
  const ribbon = (a, b, size) => {
    const [x1, x2] = [x(a.index) + body, x(b.index)];
    const bend = (x1 + x2) / 2;
    const [h1, h2] = [size(a) / 2, size(a) / 2];
    return `M${x1},${middle - h1}C${bend},${middle - h1} ${bend},${middle - h2} ${x2},${middle - h2}` +
      `L${x2},${middle + h2}C${bend},${middle + h2} ${bend},${middle + h1} ${x1},${middle + h1}Z`;
  };
  const next = facts.flow.links.filter(([a, b]) => b === a + 1);
  const far = facts.flow.links.filter(([a, b]) => b !== a + 1);
  for (const [size, colour, opacity] of [
    [(d) => scale(d.c_out), colours.rest, 0.35], [left, colours.kept, 0.35],
  ])
    svg.append("g").attr("fill", colour).attr("fill-opacity", opacity).selectAll("path").data(next)
      .join("path").attr("d", ([a, b]) => ribbon(layers[a], layers[b], size));
  const arch = ([a, b]) => {
    const [from, to] = [x(a) + body / 2, x(b) + body / 2];
    const base = (i) => middle - scale(layers[i].c_out) / 2 - 3;
    const peak = Math.min(base(a), base(b)) - Math.min(80, (b - a) * step * 0.45) - 6;
    return `M${from},${base(a)}C${from},${peak} ${to},${peak} ${to},${base(b)}`;
  };
  svg.append("g").attr("fill", "none").attr("stroke", colours.other).attr("stroke-width", 1.6)
    .selectAll("path").data([...arcs, ...far]).join("path").attr("d", arch)
    .attr("stroke-dasharray", (_, i) => (i < arcs.length ? null : "4 3"));
  const columns = svg.append("g").selectAll("g").data(layers).join("g")
    .attr("class", "column").style("cursor", "pointer").attr("data-layer", (d) => d.index)
    .on("click", (_, d) => choose(d.index, "chart"));
  columns.append("title").text((d) =>
    `${d.name}: ${d.filters_left} of ${d.c_out} filters, ` +
    `${percent(d.weights_kept / d.weights)} of its connections left`);
  const box = (name, size, fill) => columns.append("rect").attr("class", name).attr("x", (d) => x(d.index))
    .attr("width", body).attr("y", (d) => middle - size(d) / 2)
    .attr("height", (d) => Math.max(size(d), 1)).attr("fill", fill).attr("rx", 1);
  box("dense", (d) => scale(d.c_out), colours.rest);
  box("left", left, (d) => (d.kept_because === null ? colours.kept : colours.soft));
  columns.append("path").attr("fill", "none").attr("stroke", colours.chosen).attr("stroke-width", 2)
    .attr("d", (d) => {
      if (d.filters_left === d.c_out) return null;
      const h = scale(d.c_out) * (d.filters_left / d.c_out) / 2;
      return `M${x(d.index) - 1},${middle - h}h${body + 2}M${x(d.index) - 1},${middle + h}h${body + 2}`;
    });
  const foot = middle + tall / 2 + 12;
  svg.append("g").attr("fill", "currentColor").selectAll("text").data(layers).join("text")
    .attr("transform", (d) => `translate(${x(d.index) + body / 2},${foot})${named ? "rotate(-60)" : ""}`)
    .attr("text-anchor", named ? "end" : "middle").attr("font-size", 11)
    .text((d) => (named ? short(d.name, 18) : (d.index + 1) % 10 === 0 ? d.index + 1 : ""));
  const items = [
    { text: "connections left", colour: colours.kept }, { text: "kept whole", colour: colours.soft },
    { text: "dense", colour: colours.rest },
  ];
  if (layers.some((d) => d.filters_left < d.c_out))
    items.push({ text: "filters left", colour: colours.chosen, shape: "line" });
  if (arcs.length) items.push({ text: "shortcut", colour: colours.other, shape: "line" });
  if (far.length) items.push({ text: "branch", colour: colours.other, shape: "line", dash: "4 3" });
  return key(svg.node(), items, { x: 8, width });
}

const curved = planned.filter((layer) => layer.curve);
const relative = facts.goal.reading === "relative";
const reading = (layer, value) =>
  value === null ? null : relative ? Math.min(value / (layer.curve.base || 1), 1) : value;
const curveRows = () => curved.flatMap((layer) => layer.curve.levels.map((level, i) => ({
  layer: layer.name, level, accuracy: layer.curve.accuracy[i],
  read: reading(layer, layer.curve.accuracy[i]), limit: layer.limit, base: layer.curve.base,
})));

// The paper's figure: every curve, one threshold, and the limits where it meets the curves last.
function drawCurves(width, colours) {
  const points = curveRows().map((row) => ({ ...row, index: layers.find((l) => l.name === row.layer).index }));
  const mine = points.filter((row) => row.index === chosen.index);
  const threshold = facts.goal.threshold;
  const limits = curved.map((layer) => {
    const at = Math.min(Math.max(Math.round(100 * layer.limit), 1), layer.curve.levels.length) - 1;
    return { index: layer.index, name: layer.name, limit: layer.limit,
      read: reading(layer, layer.limit > 0 ? layer.curve.accuracy[at] : layer.curve.base) };
  });
  const items = [{ text: "early … late layers", colour: d3.interpolateViridis(0.45), shape: "line" }];
  if (threshold !== null)
    items.push({ text: `threshold ${percent(threshold)}`, colour: colours.ink, shape: "line", dash: "2 3" });
  items.push({ text: "limit of a layer", colour: colours.chosen, shape: "dot" });
  if (mine.length)
    items.push({ text: short(layers[chosen.index].name, 30), colour: colours.chosen, shape: "line" });
  const top = 16 + 17 * keyLines(items, width);
  return key(Plot.plot({
    width, height: 360 + top, marginLeft: 48, marginTop: top, marginRight: 26, marginBottom: 38,
    style: plotStyle,
    x: { label: "connections pruned →", domain: [0, 100], tickFormat: (d) => `${d} %` },
    y: { label: null, grid: true, tickFormat: (d) => `${(100 * d).toFixed(0)} %`, zero: !relative },
    color: { type: "sequential", scheme: "viridis", domain: [0, layers.length * 1.1] },
    marks: [
      Plot.line(points, {
        x: (d) => 100 * d.level, y: "read", z: "index", stroke: "index", strokeOpacity: 0.55,
        strokeWidth: 1.2,
      }),
      threshold === null ? null
        : Plot.ruleY([threshold], { stroke: colours.ink, strokeDasharray: "2 3", strokeWidth: 1.6 }),
      Plot.line(mine, { x: (d) => 100 * d.level, y: "read", stroke: colours.chosen, strokeWidth: 3 }),
      Plot.dot(limits, {
        x: (d) => 100 * d.limit, y: "read", fill: colours.chosen, stroke: colours.ground, r: 4,
      }),
      Plot.tip(limits, Plot.pointer({
        x: (d) => 100 * d.limit, y: "read", fill: colours.ground, fontSize: 13,
        title: (d) => `${d.name}\nmay lose ${percent(d.limit)}`,
      })),
    ],
  }), items);
}

// One small picture per layer, in one drawing: curves, masks or scores.
function drawGallery(kind) {
  return async (width, colours) => {
    const list = kind === "curves" ? curved : planned;
    const columns = Math.max(2, Math.floor(width / (width < 500 ? 112 : 158)));
    const cell = width / columns;
    const [inner, box] = [cell - 14, kind === "curves" ? 92 : cell - 14];
    const row = box + 36;
    const height = Math.ceil(list.length / columns) * row;
    const svg = d3.create("svg").attr("width", width).attr("height", height)
      .attr("viewBox", `0 0 ${width} ${height}`).attr("font-size", 11);
    const panel = svg.selectAll("g").data(list).join("g").attr("class", "panel")
      .attr("transform", (_, i) => `translate(${(i % columns) * cell + 2},${Math.floor(i / columns) * row})`)
      .attr("data-layer", (d) => d.index).style("cursor", "pointer")
      .on("click", (_, d) => choose(d.index, "chart"));
    panel.append("title").text((d) => d.name);
    panel.append("text").attr("y", 13).attr("fill", "currentColor").attr("font-weight", 600)
      .text((d) => short(d.name, Math.floor(inner / 8.6)));
    panel.append("text").attr("y", 13).attr("x", inner).attr("text-anchor", "end")
      .attr("fill", colours.soft).text((d) => percent(d.pruned, 0));
    const place = panel.append("g").attr("transform", "translate(0,19)");
    if (kind === "curves") smallCurves(place, inner, box, colours);
    else {
      const images = await Promise.all(list.map((layer) => coloured(layer, kind, colours)));
      place.append("image").attr("width", inner).attr("height", box)
        .attr("preserveAspectRatio", "none").attr("style", "image-rendering:pixelated")
        .attr("href", (_, i) => images[i]);
    }
    place.append("rect").attr("width", inner).attr("height", box).attr("fill", "none")
      .attr("pointer-events", "all").attr("stroke", (d) => (d.index === chosen.index ? colours.chosen : colours.line))
      .attr("stroke-width", (d) => (d.index === chosen.index ? 2.5 : 1));
    return svg.node();
  };
}

function smallCurves(place, inner, box, colours) {
  const x = d3.scaleLinear([0, 1], [0, inner]);
  const y = d3.scaleLinear([0, 1], [box, 0]);
  const line = (layer) => d3.line().defined((_, i) => layer.curve.accuracy[i] !== null)
    .x((level) => x(level)).y((_, i) => y(layer.curve.accuracy[i]))(layer.curve.levels);
  place.append("rect").attr("width", (d) => x(d.pruned)).attr("height", box)
    .attr("fill", colours.kept).attr("fill-opacity", 0.12);
  place.filter((d) => d.curve.bar !== null).append("line").attr("x2", inner)
    .attr("y1", (d) => y(d.curve.bar)).attr("y2", (d) => y(d.curve.bar)).attr("stroke", "currentColor")
    .attr("stroke-dasharray", "2 3").attr("stroke-opacity", 0.7);
  place.append("path").attr("d", line).attr("fill", "none").attr("stroke", colours.kept)
    .attr("stroke-width", 1.8);
  place.append("line").attr("x1", (d) => x(d.limit)).attr("x2", (d) => x(d.limit)).attr("y2", box)
    .attr("stroke", colours.chosen).attr("stroke-width", 2);
}
