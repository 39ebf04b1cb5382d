// A chart is a title, words, a function that draws it at a width and in colours, and its data.

const charts = [];
const fileName = (text) => text.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-").slice(0, 60);

// Drawn when it comes near the window, and again when its width or the theme changes.
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) entry.target.chart.wake();
}, { rootMargin: "500px" });
const resized = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const width = Math.floor(entry.contentRect.width);
    const chart = entry.target.chart;
    if (width > 0 && Math.abs(width - chart.width) > 1 && !theme.printing) requestAnimationFrame(() => chart.again());
  }
});

function chart({ id, title, words, draw, rows, span = 12, label }) {
  const plot = make("div", { class: "plot", tabindex: "-1" });
  const caption = make("figcaption");
  const heading = make("h3", {}, title);
  const save = make("div", { class: "save no-print", role: "group", "aria-label": "Save" });
  const figure = make("figure", { class: `chart span-${span}`, id },
    make("header", {}, heading, save), caption, plot);
  const self = {
    id, figure, plot, title, awake: false, width: 0, turn: 0, done: Promise.resolve(),
    wake() {
      if (!self.awake) {
        self.awake = true;
        near.unobserve(plot);
        self.again();
      }
    },
    again() {
      if (!self.awake) return self.done;
      // Paper is narrower than a window: drawn for it, letters keep their size.
      const paper = span > 6 ? 690 : 335;
      const width = theme.printing ? paper : Math.floor(plot.clientWidth);
      if (plot.clientWidth < 40) return self.done;
      self.width = width;
      const turn = (self.turn += 1);
      self.done = Promise.resolve(draw(Math.max(width, 240), palettes[theme.name])).then((svg) => {
        if (turn !== self.turn) return; // a newer drawing is under way
        svg.setAttribute("role", "img");
        svg.setAttribute("aria-label", label ? label() : self.title);
        plot.replaceChildren(svg);
      });
      return self.done;
    },
    retitle(text, description) {
      self.title = text;
      heading.textContent = text;
      caption.textContent = description ?? "";
    },
  };
  const fresh = async () => standalone(await draw(900, palettes.light), self.title);
  const name = () => fileName(`${facts.name} ${self.title}`);
  const buttons = {
    SVG: async () => download(`${name()}.svg`, "image/svg+xml", (await fresh()).text),
    PNG: async () => download(`${name()}.png`, "image/png", await pngOf(await fresh())),
    CSV: async () => download(`${name()}.csv`, "text/csv", csv(await rows())),
  };
  for (const [kind, act] of Object.entries(buttons)) {
    const words = `Save as ${kind}: ${title}`;
    save.append(make("button", { type: "button", "aria-label": words, onclick: act }, kind));
  }
  caption.textContent = words ?? "";
  plot.chart = self;
  near.observe(plot);
  resized.observe(plot);
  charts.push(self);
  return self;
}

const redraw = () => Promise.all(charts.map((each) => each.again()));

// A key of colours inside the drawing, so that it is saved with it.
function key(svg, items, { x = 44, y = 12, width = Number(svg.getAttribute("width")) } = {}) {
  const group = d3.select(svg).append("g").attr("font-size", 12).attr("text-anchor", "start");
  let at = x;
  let line = y;
  for (const { text, colour, dash, shape } of items) {
    const length = 26 + text.length * 6.3;
    if (at + length > width && at > x) {
      at = x;
      line += 17;
    }
    if (shape === "line")
      group.append("line").attr("x1", at).attr("x2", at + 16).attr("y1", line - 4)
        .attr("y2", line - 4).attr("stroke", colour).attr("stroke-width", 2.5)
        .attr("stroke-dasharray", dash ?? null);
    else if (shape === "dot")
      group.append("circle").attr("cx", at + 8).attr("cy", line - 4).attr("r", 5)
        .attr("fill", colour);
    else
      group.append("rect").attr("x", at + 3).attr("y", line - 9).attr("width", 11)
        .attr("height", 11).attr("fill", colour).attr("stroke", "currentColor")
        .attr("stroke-opacity", 0.35);
    group.append("text").attr("x", at + 20).attr("y", line).attr("fill", "currentColor").text(text);
    at += length + 10;
  }
  return svg;
}

function keyLines(items, width, x = 44) {
  let at = x;
  let lines = 1;
  for (const { text } of items) {
    const length = 26 + text.length * 6.3;
    if (at + length > width && at > x) {
      at = x;
      lines += 1;
    }
    at += length + 10;
  }
  return lines;
}

const rounded = (value) => (value === 0 ? "0" : d3.format("~s")(value));
const short = (text, length) => (text.length <= length ? text : `…${text.slice(1 - length)}`);
const plotStyle = { background: "none", fontSize: "12px", fontFamily: "inherit", overflow: "visible" };

// Layers along an axis: their names where there is room for them, else every tenth place.
function layerAxis(width, list) {
  const room = width / Math.max(list.length, 1);
  const named = room >= 15;
  const every = [10, 20, 50, 100, 500].find((step) => step * room >= 30) ?? 1000;
  return {
    type: "band", domain: list.map((layer) => layer.index), label: null, padding: 0.15,
    tickFormat: (index) => (named ? short(layers[index].name, 18) : `${index + 1}`),
    tickRotate: named ? -60 : 0,
    ticks: named ? undefined : list.map((l) => l.index).filter((i) => (i + 1) % every === 0),
    tickSize: 3,
  };
}
const longest = Math.min(18, d3.max(layers, (layer) => layer.name.length) ?? 0);
const nameSpace = 18 + 6.1 * longest; // of names that lean by 60°
const axisSpace = (width, list) => (width / Math.max(list.length, 1) >= 15 ? nameSpace : 26);
layers.forEach((layer, index) => (layer.index = index));
